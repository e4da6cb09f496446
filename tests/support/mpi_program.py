"""A sampler on MPI ranks, started by ``mpiexec -m mpi4py.futures``; says whether it is the same.

With a file as its argument a rank kills itself midway, once.
"""

import sys
from functools import partial

from mpi4py.futures import MPIPoolExecutor

import counterprobe as cp
import executor_jobs


def main():
    law, sampler = cp.families.path(64, 3), cp.samplers.Packed(num_colorings=6, num_colors=4)
    build = partial(executor_jobs.KilledMidway, law, sys.argv[1]) if sys.argv[1:] else None
    with MPIPoolExecutor() as executor:
        oracle = law.oracle().sharded(executor, build=build, piece=8)
        result = sampler(cp.run.Run(oracle), cp.Streams(3, 4))
    alone = sampler(cp.run.Run(law.oracle()), cp.Streams(3, 4))
    print((result.tokens == alone.tokens).all() and result.ledger == alone.ledger)


if __name__ == "__main__":
    main()
