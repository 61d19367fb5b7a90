# pdc_library(Area DEPENDS <areas and targets>): the library of lib/<Area>, as target pdc<Area>. ROOMS are its subfolders;
# WHOLE is one whose files are linked into every program that links the library, whether it calls them or not, because
# they register themselves. HOT is a library that plans or computes: a quick build (PdcFlags.cmake) optimises it more than
# others.
#
# Every area has an include directory of its own, which holds a link to include/pdc/<Area> and nothing else. A library
# therefore sees the headers of exactly those areas that it depends on, directly or not, and an include against the
# direction of the arrows (docs/decisions/0001-layout.md) does not compile.
function(pdc_library area)
  cmake_parse_arguments(arg "HOT" "WHOLE" "DEPENDS;SOURCES;ROOMS" ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/include-views/${area})
  file(MAKE_DIRECTORY ${view}/pdc)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/include/pdc/${area} ${view}/pdc/${area} SYMBOLIC)

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${area}/*.cpp)
  if(arg_ROOMS) # subfolders, each named for what it does
    list(TRANSFORM arg_ROOMS PREPEND ${CMAKE_SOURCE_DIR}/lib/${area}/)
    list(TRANSFORM arg_ROOMS APPEND /*.cpp)
    file(GLOB inRooms CONFIGURE_DEPENDS ${arg_ROOMS})
    list(APPEND sources ${inRooms})
  endif()
  add_library(pdc${area} STATIC ${sources} ${arg_SOURCES})
  target_include_directories(pdc${area} PUBLIC ${view} PRIVATE ${CMAKE_SOURCE_DIR}/lib/${area})
  target_link_libraries(pdc${area} PUBLIC ${arg_DEPENDS} PRIVATE $<BUILD_INTERFACE:pdc_flags>)
  set(optimised $<IF:$<BOOL:${arg_HOT}>,-O1,-Og>)
  target_compile_options(pdc${area} PRIVATE $<$<BOOL:${PDC_QUICK}>:${optimised}>)
  if(arg_WHOLE) # the linker takes from an archive only what is asked for, so these are objects
    file(GLOB whole CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/lib/${area}/${arg_WHOLE}/*.cpp)
    add_library(pdc${area}${arg_WHOLE} OBJECT ${whole})
    target_include_directories(pdc${area}${arg_WHOLE} PRIVATE ${view} ${CMAKE_SOURCE_DIR}/lib/${area})
    target_link_libraries(pdc${area}${arg_WHOLE} PRIVATE ${arg_DEPENDS} pdc_flags)
    target_compile_options(pdc${area}${arg_WHOLE} PRIVATE $<$<BOOL:${PDC_QUICK}>:${optimised}>)
    target_link_libraries(pdc${area} INTERFACE $<TARGET_OBJECTS:pdc${area}${arg_WHOLE}>)
  endif()
endfunction()
