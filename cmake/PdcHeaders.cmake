# pdc_precompile_tests(target): a unit test takes what all of them include, GoogleTest and most of the standard library, as
# compiled once. Files include what they use all the same: builds with sanitizers know nothing of this.
#
# GCC 12 forgets which headers are the system's when it reads them back, and warns of what it does not understand in them.
# So libraries do without, and tests without warnings of that kind.
if(PDC_SANITIZE OR PDC_FUZZ)
  function(pdc_precompile_tests target)
  endfunction()
  return()
endif()

function(pdc_precompile_tests target)
  if(NOT TARGET test-headers) # an executable: these are position-independent in another way than libraries
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/headers/Empty.cpp CONTENT "int main() {}\n")
    add_executable(test-headers ${CMAKE_BINARY_DIR}/headers/Empty.cpp)
    target_link_libraries(test-headers PRIVATE GTest::gtest pdc_flags)
    target_compile_options(test-headers PRIVATE $<$<CONFIG:Release>:-O1> -fpch-preprocess)
    target_precompile_headers(test-headers PRIVATE
      <gtest/gtest.h> <algorithm> <array> <cmath> <cstdint> <cstring> <filesystem> <fstream> <functional> <map> <memory> <optional>
      <set> <span> <sstream> <string> <unordered_map> <utility> <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM test-headers)
  target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow)
  if(CCACHE_PROGRAM) # it needs to be told that no macro of ours changes these headers
    set_target_properties(test-headers ${target} PROPERTIES
      CXX_COMPILER_LAUNCHER "env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE_PROGRAM}")
  endif()
endfunction()
