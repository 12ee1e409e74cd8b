/* The header of the compiler nvcc that the runtime's headers include: what its names mean to a C compiler. */
#define CUDARTAPI
#define __host__
#define __device__
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __CUDA_ARCH_LIST__
