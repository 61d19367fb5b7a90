# Included by a generated CMakeLists.txt (CMAKE_PROJECT_pipeline_INCLUDE): adds `replay`, the pipeline's stages linked with
# the library ${REPLAY} of replay.cpp.
function(add_replay)
  get_target_property(definitions pipeline COMPILE_DEFINITIONS)
  get_target_property(libraries pipeline LINK_LIBRARIES)
  add_executable(replay pipeline.cpp)
  target_compile_definitions(replay PRIVATE ${definitions})
  target_link_libraries(replay PRIVATE ${REPLAY} ${libraries})
endfunction()
cmake_language(DEFER CALL add_replay)
