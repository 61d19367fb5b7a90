#!/bin/sh
# lora-with-peft.sh SOURCE FOLDER ARGUMENTS…: lora_with_peft.py in a new folder.
source=$1 folder=$2
shift 2
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder" || exit 1
exec timeout 1200 "$source/build/peft-venv/bin/python" "$source/test/EndToEnd/Inputs/lora_with_peft.py" "$@" 2>&1
