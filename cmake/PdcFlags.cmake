# Compiler flags of everything that we write: warnings are errors, floating point is not reassociated or contracted
# (bits must not depend on where the compiler found an opportunity).
add_library(pdc_flags INTERFACE)
target_compile_options(pdc_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers -Werror
  -ffp-contract=off)
if(PDC_SANITIZE)
  add_compile_options(-fsanitize=${PDC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PDC_SANITIZE})
endif()
install(TARGETS pdc_flags EXPORT pdcrtTargets)
