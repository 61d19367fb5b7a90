// The messages of the ONNX format, from libonnx.
#pragma once

#include <onnx/onnx_pb.h>
