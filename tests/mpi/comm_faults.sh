#!/bin/bash
# Every way in which a rank can fail ends the job soon, with the right status and the first cause in words.
# usage: comm_faults.sh PROGRAM
set -u
program=$1
here=$(dirname "$0")
output=$(mktemp)
trap 'rm -f "$output"' EXIT
failures=0

# expect FAULT RANKS STATUSES TEXT: STATUSES are separated by '|'; TEXT is a pattern of grep -E, empty for none.
expect() {
  local begin=$SECONDS status
  timeout -k 5 60 "$here/mpi_test.sh" "$2" "$program" "$1" >"$output" 2>&1
  status=$?
  report "$1 on $2 ranks" "$status" "$3" "$4" $((SECONDS - begin))
}

report() {
  local ok=1
  [[ "|$3|" == *"|$2|"* ]] || ok=0
  [[ -z $4 ]] || grep -qE -- "$4" "$output" || ok=0
  [[ $5 -le 15 ]] || ok=0
  if [[ $ok -eq 1 ]]; then
    echo "ok: $1: status $2 after $5 s"
  else
    echo "FAILED: $1: status $2 (expected $3) after $5 s (at most 15), output (expected \"$4\"):"
    cat "$output"
    failures=$((failures + 1))
  fi
}

once() {
  [[ $(grep -cE -- "$1" "$output") -eq 1 ]] && return
  echo "FAILED: \"$1\" is not said exactly once:"
  cat "$output"
  failures=$((failures + 1))
}

expect none 2 0 'ranks: 2'
expect none 1 0 'ranks: 1'
expect kill 3 137 ''
expect stop 3 7 'all_reduce of dense/kernel: rank 1 has stopped'
expect throw 3 3 '\[rank 1\] error: x.npz: row 3 is damaged'
once 'error: |all_reduce of'
expect abort 4 5 '\[rank 1\] error: the loss is NaN'
once 'error: |all_reduce of'
expect exit 2 3 ''
expect sleep 3 7 'all_reduce of dense/kernel: rank 1 did not arrive within 2 s'
expect desync 2 7 'all_reduce of 5 float32'
# The rank that has left is inside MPI_Finalize, where Open MPI 4.1 may crash when the job is ended.
expect leave 2 '7|139' 'all_reduce of dense/kernel: rank 1 had already finished'
expect hang 2 7 'no progress for .* during training'

# The same between nodes, where ranks exchange messages.
export TESSERA_COMM=mpi
expect none 3 0 'ranks: 3'
expect kill 3 137 ''
expect stop 3 7 'all_reduce of dense/kernel: rank 1 has stopped'
expect throw 3 3 '\[rank 1\] error: x.npz: row 3 is damaged'
expect sleep 3 7 'all_reduce of dense/kernel: rank 1 did not arrive within 2 s'
unset TESSERA_COMM

# Several processes of a launcher that MPI does not join: they must not train alone.
begin=$SECONDS
SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 timeout 60 "$program" none >"$output" 2>&1
report 'srun without PMIx' $? 7 'started 4 processes.*srun --mpi=pmix' $((SECONDS - begin))
begin=$SECONDS
PMI_SIZE=2 PMI_RANK=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  timeout 60 "$program" none >"$output" 2>&1
report 'mpirun of another MPI' $? 7 'started 2 processes.*srun --mpi=pmix' $((SECONDS - begin))

# Without a launcher MPI is not needed.
begin=$SECONDS
timeout 60 "$program" none >"$output" 2>&1
report 'no launcher' $? 0 'ranks: 1' $((SECONDS - begin))

[[ $failures -eq 0 ]]
