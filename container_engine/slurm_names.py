"""Names of variables that are Slurm's, whatever an image or an environment says. Pure."""

_SLURMS = ("SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "PALS_")
# Settings of the image's own PMIx library, which Slurm does not make.
_OF_LIBRARY = "PMIX_MCA_"


def is_slurms(name: str) -> bool:
    return name.startswith(_SLURMS) and not name.startswith(_OF_LIBRARY)
