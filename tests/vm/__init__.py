"""Two virtual machines with kernels of their own, and the tests of `make check-vm` on them."""
