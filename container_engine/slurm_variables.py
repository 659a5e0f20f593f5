"""Tell variables of Slurm from others, whatever an image or an environment says. Pure."""

_SLURMS = ("SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "PALS_")
# settings for the PMIx library of the image, which Slurm does not set
_OF_LIBRARY = "PMIX_MCA_"


def is_of_slurm(name: str) -> bool:
    return name.startswith(_SLURMS) and not name.startswith(_OF_LIBRARY)
