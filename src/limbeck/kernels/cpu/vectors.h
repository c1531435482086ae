/* Vectors of 16 numbers, products and exponentials for the kernels of this folder, in GNU C: a compiler makes of them what
 * the machine has. Instructions that it does not find are named where they exist.
 */
#ifndef LIMBECK_VECTORS_H
#define LIMBECK_VECTORS_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define LANES 16
#define TILE 4 /* rows of a tile of two vectors; twice as many of one */
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t integers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* A number of numbers rounded up to whole vectors. */
static int whole(int size) { return (size + LANES - 1) / LANES * LANES; }

/* One number of bfloat16 as float32. */
static inline float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One number rounded to bfloat16, to the nearest, ties to even. */
static inline uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Lanes of x where the mask is all ones, and of y where it is 0. */
static inline lanes chosen(integers takes_x, lanes x, lanes y) {
    return (lanes)((takes_x & (integers)x) | (~takes_x & (integers)y));
}

/* The greater number of each lane; x where it is not a number. */
static inline lanes greater(lanes x, lanes y) {
#if defined(__AVX512F__)
    return (lanes)_mm512_max_ps((__m512)y, (__m512)x);
#else
    return chosen(y > x, y, x);
#endif
}

/* The number n lanes further on in every lane; n is a constant. */
#if defined(__clang__)
#define MOVED(x, n) __builtin_shufflevector(x, x, n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, \
                                            n + 10, n + 11, n + 12, n + 13, n + 14, n + 15)
#else
#define MOVED(x, n) __builtin_shuffle(x, (integers){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + n)
#endif

/* The sum of all lanes. */
static inline float total(lanes x) {
    x += MOVED(x, 8);
    x += MOVED(x, 4);
    x += MOVED(x, 2);
    x += MOVED(x, 1);
    return x[0];
}

/* The largest number of all lanes. */
static inline float largest(lanes x) {
    x = greater(x, MOVED(x, 8));
    x = greater(x, MOVED(x, 4));
    x = greater(x, MOVED(x, 2));
    x = greater(x, MOVED(x, 1));
    return x[0];
}

/* exp(x) for x <= 0 within 2e-7 of itself; below -87 about 0. It is 2^n exp(r) with n = x / ln 2 rounded and r = x - n ln 2,
 * where ln 2 is two numbers, the first exact in few bits, and exp(r) a polynomial of degree 7. */
static inline lanes exponential(lanes x) {
    x = greater(x, (lanes){0} - 87.0f);
#if defined(__AVX512F__)
    lanes power = (lanes)_mm512_roundscale_ps((__m512)(x * 1.44269504f), _MM_FROUND_TO_NEAREST_INT);
#else /* Truncation rounds to the nearest, since x <= 0. */
    lanes power = __builtin_convertvector(__builtin_convertvector(x * 1.44269504f - 0.5f, integers), lanes);
#endif
    lanes rest = (x - power * 0.693359375f) + power * 2.12194440e-4f;
    lanes series = rest * (1.0f / 5040) + 1.0f / 720;
    series = series * rest + 1.0f / 120;
    series = series * rest + 1.0f / 24;
    series = series * rest + 1.0f / 6;
    series = series * rest + 0.5f;
    series = series * rest * rest + rest + 1.0f;
#if defined(__AVX512F__)
    return (lanes)_mm512_scalef_ps((__m512)series, (__m512)power);
#else
    integers bits = (__builtin_convertvector(power, integers) + 127) << 23;
    return series * (lanes)bits;
#endif
}

/* A tile of a product, some rows of some vectors; arguments as of `multiply`. */
static inline __attribute__((always_inline)) void tile(int rows, int vectors, int k, const float *a, int64_t down,
                                                       int64_t along, const float *b, int64_t b_row, float *c,
                                                       int64_t c_row, int add) {
    lanes sums[2 * TILE][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = add ? *(lanes *)(c + r * c_row + v * LANES) : (lanes){0};
    for (int i = 0; i < k; i++)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                sums[r][v] += a[r * down + i * along] * *(const lanes *)(b + i * b_row + v * LANES);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(lanes *)(c + r * c_row + v * LANES) = sums[r][v];
}

/* C[m, n] = A[m, k] B[k, n], or added to C where `add` is 1. n is whole vectors; A is read at row * down + column * along,
 * B and C have rows of `b_row` and `c_row` numbers. Tiles of two vectors and four rows, or of one vector and eight, keep
 * their sums in registers. */
static void multiply(int m, int n, int k, const float *a, int64_t down, int64_t along, const float *b, int64_t b_row,
                     float *c, int64_t c_row, int add) {
    for (int column = 0; column < n; column += 2 * LANES) {
        const float *right = b + column;
        float *out = c + column;
        int row = 0, two = n - column > LANES;
        if (!two)
            for (; row + 2 * TILE <= m; row += 2 * TILE)
                tile(2 * TILE, 1, k, a + row * down, down, along, right, b_row, out + row * c_row, c_row, add);
        for (; row + TILE <= m; row += TILE) {
            if (two) tile(TILE, 2, k, a + row * down, down, along, right, b_row, out + row * c_row, c_row, add);
            else tile(TILE, 1, k, a + row * down, down, along, right, b_row, out + row * c_row, c_row, add);
        }
        for (; row < m; row++) {
            if (two) tile(1, 2, k, a + row * down, down, along, right, b_row, out + row * c_row, c_row, add);
            else tile(1, 1, k, a + row * down, down, along, right, b_row, out + row * c_row, c_row, add);
        }
    }
}

#endif
