// A CUDA driver with as many GPUs as $GPUS says, of the compute capability $CAPABILITY.
#include <stdlib.h>

static int number(const char* name) {
  const char* text = getenv(name);
  return text ? atoi(text) : 0;
}

int cuInit(unsigned flags) {
  (void)flags;
  return number("BROKEN");
}

int cuDeviceGetCount(int* count) {
  *count = number("GPUS");
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? number("CAPABILITY") : 0;
  return 0;
}
