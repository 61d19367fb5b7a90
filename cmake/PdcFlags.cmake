# Compiler flags of everything that we write: warnings are errors, floating point is not reassociated or contracted
# (bits must not depend on where the compiler found an opportunity). -Wrestrict is off because GCC 12 reports it for every
# "literal" + std::string (GCC bug 105651), -Wfree-nonheap-object because it reports vectors that were made from lists.
# A release is -O2: -O3 makes compiling slower and the compiler no faster. Kernels (runtime/CMakeLists.txt) and generated
# programs are -O3.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
add_library(pdc_flags INTERFACE)
target_compile_options(pdc_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers
  -Wno-restrict -Wno-free-nonheap-object -Werror
  -ffp-contract=off)
# For the first build of all: a third of the time to compile, at the price of a compiler that takes longer. What a library
# consists of is compiled as one file, and optimised little, or less where it plans (pdc_library). Kernels and what the
# runtime does in a step, which programs link, are those of a release.
option(PDC_QUICK "Compile in a fraction of the time; the compiler, not its programs, gets slower" OFF)
if(PDC_QUICK)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
  # Names of one file hide those of others there, and anonymous namespaces are those of an included file.
  target_compile_options(pdc_flags INTERFACE -Wno-shadow -Wno-subobject-linkage)
endif()
if(PDC_SANITIZE)
  # Half the time of -O2 -g to compile; reports keep their files and lines.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
  add_compile_options(-fsanitize=${PDC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PDC_SANITIZE})
  # GCC 12 no longer sees what is initialised in instrumented code (as its manual says of -fsanitize); a release is told.
  target_compile_options(pdc_flags INTERFACE -Wno-maybe-uninitialized)
endif()
if(PDC_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link -w) # warnings are those of GCC
endif()
install(TARGETS pdc_flags EXPORT pdcrtTargets)
