# The runtime for CUDA, over cuBLASLt and cuDNN, where the toolkit is. Nothing links libcuda, so that programs start, and say
# so, where no driver is.
find_program(CMAKE_CUDA_COMPILER nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(CMAKE_CUDA_COMPILER AND NOT PDC_SANITIZE)
  set(has_nvcc ON)
else()
  set(has_nvcc OFF)
endif()
option(PDC_CUDA "Build the runtime for CUDA too" ${has_nvcc})
if(NOT PDC_CUDA)
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Compute capabilities of the runtime for CUDA")
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know it of nvcc 13
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)

# A toolkit that holds little more than the compiler lacks these; pip has them (utils/models/prepared.py says where).
set(cublasLt CUDA::cublasLt)
if(NOT TARGET CUDA::cublasLt)
  find_path(CUBLASLT_INCLUDE_DIR cublasLt.h REQUIRED)
  find_library(CUBLASLT_LIBRARY cublasLt REQUIRED)
  set(cublasLt ${CUBLASLT_LIBRARY})
endif()
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}) # programs without it say so
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})

# For fused attention: pip's nvidia-cudnn-frontend has the headers. Without them programs know the plain one.
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${CUDAToolkit_INCLUDE_DIRS})

file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS kernels/common/*.cpp kernels/cuda/*.cu kernels/cuda/support/*.cu
                                                kernels/cuda/trial/*.cu device/cuda/*.cu device/cuda/*.cpp)
add_library(pdcrt_cuda_kernels STATIC ${cuda_kernel_sources} src/transport/nccl/NcclTransport.cpp)
target_include_directories(pdcrt_cuda_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/kernels
  ${CMAKE_CURRENT_SOURCE_DIR}/src ${CUDNN_INCLUDE_DIR} ${CUBLASLT_INCLUDE_DIR} ${NVTX_INCLUDE_DIR})
# 554: a view of const elements has a conversion to itself that nobody calls. cuDNN's convolutions are marked as old.
target_compile_options(pdcrt_cuda_kernels PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -diag-suppress=554 -Xcompiler=-Wno-deprecated-declarations>)
# The optimizers' formulas with the bits that they have on the CPU: memory limits them, not arithmetic.
set_source_files_properties(device/cuda/Update.cu PROPERTIES COMPILE_OPTIONS -fmad=false)
target_link_libraries(pdcrt_cuda_kernels PUBLIC pdcrt_base CUDA::cudart_static ${cublasLt} ${CUDNN_LIBRARY})
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  target_sources(pdcrt_cuda_kernels PRIVATE src/transport/nccl/NcclTeam.cpp)
  set_source_files_properties(src/transport/nccl/NcclTransport.cpp src/transport/nccl/NcclTeam.cpp PROPERTIES
    COMPILE_DEFINITIONS PDCRT_NCCL COMPILE_OPTIONS "-isystem;${NCCL_INCLUDE_DIR}")
  target_link_libraries(pdcrt_cuda_kernels PUBLIC ${NCCL_LIBRARY})
endif()
if(CUDNN_FRONTEND_INCLUDE_DIR AND TARGET CUDA::nvrtc) # which the headers call, though not for attention
  set_source_files_properties(kernels/cuda/FusedAttention.cu PROPERTIES
    COMPILE_DEFINITIONS PDCRT_CUDNN_FRONTEND COMPILE_OPTIONS "-isystem;${CUDNN_FRONTEND_INCLUDE_DIR}")
  target_link_libraries(pdcrt_cuda_kernels PUBLIC CUDA::nvrtc ${CMAKE_DL_LIBS})
endif()
target_include_directories(pdcrt_cuda_kernels PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)

# What a program for CUDA links.
add_library(pdcrt_cuda INTERFACE)
target_link_libraries(pdcrt_cuda INTERFACE pdcrt_run pdcrt_cuda_kernels)
list(APPEND targets pdcrt_cuda_kernels pdcrt_cuda)
