#!/bin/sh
# Runs PROGRAM on RANKS ranks of this machine, whatever it is: root in a container, fewer cores than ranks.
# usage: mpi_test.sh RANKS PROGRAM [ARGUMENT ...]
set -eu
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
ranks=$1
shift
exec mpirun -np "$ranks" "$@"
