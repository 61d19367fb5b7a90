// The part of NVTX that the runtime of pdc uses (../../Runtime.cpp). The names of ranges go, indented by those around
// them, to the file that PDC_STAND_IN_RANGES names.
#pragma once

int nvtxRangePushA(const char* name);
int nvtxRangePop();
