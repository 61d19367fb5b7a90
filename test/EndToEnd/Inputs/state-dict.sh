#!/bin/sh
# state-dict.sh SOURCE FOLDER EXAMPLE EXPORTER FLAGS…: compares an example of examples/pytorch with PyTorch, in a new folder.
source=$1 folder=$2 example=$3 exporter=$4
shift 4
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder" || exit 1
exec timeout 1200 "$source/build/exporters-venv/bin/python" "$source/test/EndToEnd/Inputs/state_dict_with_pytorch.py" \
  "$source/examples/pytorch/$example.py" "$exporter" "$@" 2>&1
