"""The epochs of a text: drawn once for all threads that read them."""

import threading
import time

from pretrain.data.batches.windows import BatchLayout


def test_threads_that_begin_an_epoch_together_draw_it_once(corpus):
    epochs = []

    class SlowLayout(BatchLayout):
        def open_epoch(self, number):
            epochs.append(number)
            time.sleep(0.05)
            return super().open_epoch(number)

    layout = SlowLayout(B=4, L=32).bind(corpus, corpus.splits["train"], shuffle=True)
    step = layout.steps_per_epoch
    threads = [threading.Thread(target=layout.batch, args=(step,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert epochs == [1]


def test_binding_a_text_leaves_the_configured_layout_as_it_was(corpus):
    layout = BatchLayout(B=4, L=32)
    bound = layout.bind(corpus, corpus.splits["train"], shuffle=True)
    assert bound is not layout
    assert not hasattr(layout, "corpus")
