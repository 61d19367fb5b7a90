# Writes OUTPUT, a C++ file with the commit of the repository SOURCE, where it has changed.
#   cmake -DSOURCE=… -DOUTPUT=… -P WriteCommit.cmake
set(commit "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 "--exclude=*"
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "namespace pdc {\nextern const char* const commit;\nconst char* const commit = \"${commit}\";\n} // namespace pdc\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
