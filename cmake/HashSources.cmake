# Writes OUTPUT, a C++ file that defines pdcrt::runtimeBuild(): the hash of the sources below FOLDER and of FLAGS.
#   cmake -DFOLDER=… -DFLAGS=… -DOUTPUT=… -P HashSources.cmake
file(GLOB_RECURSE sources RELATIVE ${FOLDER} ${FOLDER}/*.cpp ${FOLDER}/*.h ${FOLDER}/*.cu ${FOLDER}/*.cuh)
list(SORT sources)
set(text "${FLAGS}")
foreach(source IN LISTS sources)
  file(SHA256 ${FOLDER}/${source} hash)
  string(APPEND text " ${source} ${hash}")
endforeach()
string(SHA256 hash "${text}")
file(WRITE ${OUTPUT} "namespace pdcrt {\nconst char* runtimeBuild();\nconst char* runtimeBuild() {\n  return \"${hash}\";\n}\n} // namespace pdcrt\n")
