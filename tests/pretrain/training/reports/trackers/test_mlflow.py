"""Both lives of a run are one in MLflow."""

from tests.support.tracking_service import check_two_lives

pytest_plugins = ["tests.support.tracking_service"]


def test_a_resumed_run_goes_on_under_its_id(service, tmp_path):
    check_two_lives(service, "mlflow", tmp_path)
