"""A stand-in for PyTorch: as much of it as the quick start uses, without GPUs.

`init_process_group` meets the other ranks as PyTorch's own does: rank 0 listens at MASTER_ADDR and
MASTER_PORT, all connect to it, and none goes on before all have connected.
"""

import os
import types

cuda = types.SimpleNamespace(
    is_available=lambda: "NVIDIA_VISIBLE_DEVICES" in os.environ, set_device=lambda _device: None
)
