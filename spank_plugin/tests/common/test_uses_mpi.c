#define _GNU_SOURCE
#include "common/uses_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

TEST("a program that is linked with an MPI library is recognised, others are not")
{
	CHECK_INT(chdir(test_directory()), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpich.so.12 -o libmpich.so");
	test_build("-shared -fPIC -Wl,-soname,libmp.so.1 -o libmp.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmp -lmpich -o with");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmp -o without");
	CHECK_INT(ce_uses_mpi("with"), 1);
	CHECK_INT(ce_uses_mpi("without"), 0);
	CHECK_INT(ce_uses_mpi("libmpich.so"), 0);
	CHECK_INT(ce_uses_mpi("absent"), 0);
	CHECK_INT(ce_uses_mpi("."), 0);
}

TEST("reading a program that is cut off or damaged anywhere does no harm")
{
	static char whole[1 << 16];

	CHECK_INT(chdir(test_directory()), 0);
	test_build("-shared -fPIC -Wl,-soname,libmpi.so.40 -o libmpi.so");
	test_build("-shared -fPIC -Wl,--no-as-needed -L. -lmpi -o with");
	FILE *file = fopen("with", "rb");
	CHECK(file != NULL);
	size_t size = fread(whole, 1, sizeof whole, file);
	fclose(file);
	for (size_t end = 0; end < size; end += 97) {
		whole[end] ^= 0x5a;
		file = fopen("bad", "wb");
		CHECK(file != NULL);
		CHECK(fwrite(whole, 1, end % 2 == 0 ? size : end, file) > 0);
		fclose(file);
		(void)ce_uses_mpi("bad");
		whole[end] ^= 0x5a;
	}
}
