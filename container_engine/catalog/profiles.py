"""Environment profiles of the hook aws_ofi_nccl: named, versioned sets of tuning variables.

The numbers change between releases of the network's software, and users copy them by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOOK = "com.hooks.aws_ofi_nccl"
CURRENT = "slingshot-2026.06"
# Whether a launch puts the current profile into containers. Until it does, an [env] that repeats
# the profile is needed, and what is said of it must not tell people to remove it.
IS_APPLIED = False

PROFILES: Mapping[str, Mapping[str, str]] = {
    "slingshot-2026.06": {
        "CUDA_CACHE_DISABLE": "1",
        "FI_CXI_DEFAULT_CQ_SIZE": "131072",
        "FI_CXI_DEFAULT_TX_SIZE": "16384",
        "FI_CXI_DISABLE_HOST_REGISTER": "1",
        "FI_CXI_RDZV_EAGER_SIZE": "0",
        "FI_CXI_RDZV_GET_MIN": "0",
        "FI_CXI_RDZV_PROTO": "alt_read",
        "FI_CXI_RDZV_THRESHOLD": "0",
        "FI_CXI_RX_MATCH_MODE": "software",
        "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD": "16777216",
        "FI_MR_CACHE_MAX_COUNT": "524288",
        "FI_MR_CACHE_MAX_SIZE": "-1",
        "FI_MR_CACHE_MONITOR": "userfaultfd",
        "NCCL_CROSS_NIC": "0",
        "NCCL_NCHANNELS_PER_NET_PEER": "4",
        "NCCL_NET": "AWS Libfabric",
        "NCCL_NET_GDR_C2C": "1",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_PROTO": "^LL128",
        "NCCL_PXN_DISABLE": "1",
    },
    "slingshot-2025": {
        "FI_CXI_DEFAULT_CQ_SIZE": "131072",
        "FI_CXI_DEFAULT_TX_SIZE": "16384",
        "FI_CXI_DISABLE_HOST_REGISTER": "1",
        "FI_CXI_RX_MATCH_MODE": "software",
        "FI_MR_CACHE_MONITOR": "userfaultfd",
        "NCCL_CROSS_NIC": "1",
        "NCCL_NET": "AWS Libfabric",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "NCCL_PROTO": "^LL128",
    },
}


def active(annotations: Mapping[str, str]) -> str | None:
    """The name of the profile that these annotations ask for, None without the hook."""
    return CURRENT if annotations.get(f"{HOOK}.enabled") == "true" else None
