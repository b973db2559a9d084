"""Reports what a run does: metrics.jsonl, TensorBoard, the progress line, curves, last words."""
