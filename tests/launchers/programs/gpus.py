"""Count this node's GPUs by NVML's Python binding, as the page on failed nodes does."""

import pynvml

try:
    pynvml.nvmlInit()
    print("GPUs:", pynvml.nvmlDeviceGetCount())
except pynvml.NVMLError as error:
    print("no GPUs:", error)
