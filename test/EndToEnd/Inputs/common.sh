# Sourced by the end-to-end scripts: needs $SOURCE, $BUILD (the tree and the build that is tested) and $WORK (a scratch folder).
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$WORK"

fail() { echo "FAILED: $*" >&2; exit 1; }

# generate FOLDER FLAGS…: a pipeline of ${model:-examples/digits/digits.onnx} with batch 4 in $WORK/FOLDER. $lr: 0.01, of the
# momentum that learns where $optimizer names nothing else. Buckets of gradients are so small that a stage has several.
generate() {
  local folder=$1
  shift
  "$BUILD/bin/pdc" "${model:-$SOURCE/examples/digits/digits.onnx}" -o "$WORK/$folder" --batch=4 --profile=analytic --bucket=${bucket:-64KiB} \
    ${loss---loss=softmax-cross-entropy} --optimizer=${optimizer:-momentum,lr=${lr:-0.01},momentum=0.9,weight_decay=0.001} "$@" \
    >"$WORK/$folder.log" 2>&1 || { cat "$WORK/$folder.log" >&2; fail "pdc could not compile $folder $*"; }
}

# arena FOLDER: the bytes that the plan in $WORK/FOLDER states for its first rank.
arena() { grep -o '"memory_bytes": [0-9]*' "$WORK/$1/plan.json" | head -1 | grep -o '[0-9]*$'; }

# build FOLDER [TARGET…]: builds the program in $WORK/FOLDER that hosts all ranks, and what else is named; `replay` is the
# replay from the formulas. The programs of single ranks take as long to link and are those of `pipeline` otherwise.
build() {
  local folder=$1
  shift
  { cmake -S "$WORK/$folder" -B "$WORK/$folder/out" -G Ninja -DCMAKE_PREFIX_PATH="$BUILD" -DREPLAY="$BUILD/lib/libReplay.a" \
      -DCMAKE_PROJECT_pipeline_INCLUDE="$SOURCE/test/EndToEnd/replay/replay.cmake" &&
      cmake --build "$WORK/$folder/out" --target pipeline "$@"; } \
    >"$WORK/$folder.log" 2>&1 || { cat "$WORK/$folder.log" >&2; fail "the generated program $folder does not build"; }
}

# on_stand_in FOLDER [TARGET…]: builds the program for CUDA in $WORK/FOLDER on the stand-in for CUDA (test/stand-in), and what else is
# named, as `build` does.
on_stand_in() {
  local folder=$1
  shift
  { cmake -S "$SOURCE/test/stand-in/program" -B "$WORK/$folder/out" -G Ninja -DCMAKE_PREFIX_PATH="$BUILD" -DPROGRAM="$WORK/$folder" \
      -DREPLAY="$BUILD/lib/libReplay.a" -DCMAKE_PROJECT_on_stand_in_INCLUDE="$SOURCE/test/EndToEnd/replay/replay.cmake" &&
      cmake --build "$WORK/$folder/out" --target pipeline "$@"; } \
    >"$WORK/$folder.log" 2>&1 || { cat "$WORK/$folder.log" >&2; fail "$folder does not build"; }
}

# profile_on_stand_in FLAGS…: $WORK/profile.json of $model with batch 4, for CUDA. pdc-profile builds with the `cmake` that it finds: this
# one builds programs for CUDA on the stand-in.
profile_on_stand_in() {
  mkdir "$WORK/bin"
  cat >"$WORK/bin/cmake" <<EOF
#!/bin/sh
[ "\$1" = -S ] || exec "$(command -v cmake)" "\$@"
program=\$2
shift 2
exec "$(command -v cmake)" -S "$SOURCE/test/stand-in/program" -DPROGRAM="\$program" "\$@"
EOF
  chmod +x "$WORK/bin/cmake"
  PATH="$WORK/bin:$PATH" "$BUILD/bin/pdc-profile" "$model" -o "$WORK/profile.json" --target=cuda --batch=4 "$@" \
    >"$WORK/profile.log" 2>&1 || { cat "$WORK/profile.log" >&2; fail "pdc-profile"; }
}

# compile FOLDER STAGES FLAGS…: generates a pipeline with these replicas and builds it.
compile() {
  local folder=$1 stages=$2
  shift 2
  generate "$folder" --replicas="${stages//-/,}" "$@"
  build "$folder"
}

# train FOLDER EXPORT FLAGS…: runs all ranks of the pipeline as threads and exports the weights to $WORK/EXPORT.
train() {
  local folder=$1 export=$2
  shift 2
  "$WORK/$folder/out/pipeline" --threads --data "$WORK/data" --export-weights "$WORK/$export" "$@" \
    >"$WORK/$export.log" 2>&1 || { cat "$WORK/$export.log" >&2; fail "$folder $*"; }
}

# train_mpi RANKS FOLDER EXPORT FLAGS…: the same with one process per rank.
train_mpi() {
  local ranks=$1 folder=$2 export=$3
  shift 3
  mpirun --oversubscribe --mca btl_vader_single_copy_mechanism none -n "$ranks" "$WORK/$folder/out/pipeline" \
    --data "$WORK/data" --export-weights "$WORK/$export" "$@" >"$WORK/$export.log" 2>&1 ||
    { cat "$WORK/$export.log" >&2; fail "mpirun -n $ranks $folder $*"; }
}

# train_tcp PROCESSES FOLDER EXPORT FLAGS…: the same over TCP, with processes that are started one by one.
train_tcp() {
  local processes=$1 folder=$2 export=$3 rank port started=()
  shift 3
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for ((rank = 0; rank < processes; ++rank)); do
    PDC_RANK=$rank PDC_WORLD_SIZE=$processes PDC_MASTER=127.0.0.1:$port "$WORK/$folder/out/pipeline" \
      --data "$WORK/data" --export-weights "$WORK/$export" "$@" >"$WORK/$export.$rank.log" 2>&1 &
    started+=($!)
  done
  for rank in "${!started[@]}"; do
    wait "${started[rank]}" || { cat "$WORK/$export".*.log >&2; fail "$processes processes over TCP, $folder $*"; }
  done
}

# same A B: two folders of exported weights hold the same bytes.
same() {
  [ -n "$(ls -A "$WORK/$1")" ] || fail "$1 is empty"
  diff -r "$WORK/$1" "$WORK/$2" >/dev/null || fail "the weights in $1 and $2 differ"
}

[ -d "$WORK/data" ] || python3 "$SOURCE/test/EndToEnd/Inputs/make_data.py" "$WORK/data" 64
