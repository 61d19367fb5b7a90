# Two Debian packages, made by `cpack -G DEB` in the build folder: the compiler's tools, and the runtime that generated programs
# are built against. `cmake --build … --target uninstall` removes what `cmake --install` has written.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pdc)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the authors of pdc")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler from ONNX models to pipeline-parallel training programs")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL tools runtime)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME pdc)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Tools: pdc, pdc-run, pdc-ckpt, pdc-plan, pdc-sim and others, with man pages and completion.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON) # needs dpkg-shlibdeps, of dpkg-dev
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libpdcrt-dev (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "python3-numpy, python3-pil") # pdc-images

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libpdcrt-dev)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Runtime: libraries, headers and the CMake package that generated programs are built against.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "g++, cmake (>= 3.25), libdnnl-dev, libopenmpi-dev, openmpi-bin")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ninja-build")
include(CPack)

configure_file(${CMAKE_CURRENT_LIST_DIR}/Uninstall.cmake.in ${CMAKE_BINARY_DIR}/Uninstall.cmake @ONLY)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_BINARY_DIR}/Uninstall.cmake USES_TERMINAL)
