#!/bin/sh
# install.sh SOURCE BUILD WORK: installs BUILD, takes the source and build trees out of sight of what it then does: compiles,
# builds and trains; and uninstalls. With a fourth word, installs the packages that cpack makes instead.
set -eu
source=$1 build=$2 work=$3 package=${4:-}
rm -rf "$work"
mkdir -p "$work"
if [ -n "$package" ]; then
  (cd "$build" && cpack -G DEB -B "$work/packages") >"$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
  for file in "$work"/packages/*.deb; do
    dpkg-deb -f "$file" Package Depends
    dpkg-deb -x "$file" "$work/root"
  done
  prefix=$work/root/usr
else
  prefix=$work/prefix
  cmake --install "$build" --prefix "$prefix" >"$work/log"
fi
find "$prefix" -type f | sed "s,^$prefix/,," | sort >"$work/files"
grep -c '^include/pdcrt/.*\.h$' "$work/files" | sed 's/.*/headers are there/'
for file in bin/pdc bin/pdc-run lib/libpdcrt_run.a lib/cmake/pdcrt/pdcrtConfig.cmake share/man/man1/pdc.1 \
    share/bash-completion/completions/pdc-run; do
  grep -qx "$file" "$work/files" && echo "has $file"
done
if [ -z "$package" ] && grep -rlI -e "$source" -e "$build" "$prefix"; then echo "names of the source or build tree"; fi

"$prefix/bin/pdc" "$source/examples/digits/digits.onnx" -o "$work/program" --batch=8 --profile=analytic \
  --loss=softmax-cross-entropy --devices=1 >"$work/log"
cmake -S "$work/program" -B "$work/program/by-hand" -DCMAKE_PREFIX_PATH="$prefix" -G Ninja >"$work/log"
cmake --build "$work/program/by-hand" --target pipeline >"$work/log"
"$work/program/by-hand/pipeline" --threads --data synthetic --steps 2 >"$work/log" 2>&1 && echo "a generated folder builds and runs"
if [ -z "$package" ]; then
  cmake -P "$build/Uninstall.cmake" # what the target does
  find "$prefix" -mindepth 1 | wc -l | sed 's/$/ files and folders are left/'
fi
