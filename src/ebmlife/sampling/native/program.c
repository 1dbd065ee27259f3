/* Runs the forward and backward pass of a small convolutional network on blocks of IMAGES images at a time.

   Images lie side by side in the innermost dimension: a feature map is [pixel][channel][image], and one `lanes` holds
   one channel of one pixel of a block. Every convolution, strided or not, forward or backward, is then the same
   sum over taps (a neighbouring pixel, a place in the kernel) of a small matrix product, with no copying of patches,
   no products with padding, and the whole network of a block in cache. `program.py` makes the taps. */

#include <stdint.h>
#include <string.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

#ifndef IMAGES
#define IMAGES 16
#endif
#if defined(__AVX512F__) && IMAGES >= 16
#define WIDTH 16 /* floats in a register */
#define SUMS 24  /* registers for sums: what is left of 32 */
#else
#define WIDTH 8
#define SUMS 12 /* what is left of 16 */
#endif
#define PARTS (IMAGES / WIDTH)
#define TILE (SUMS / PARTS) /* output channels at once */
#define MOST_TAPS 16 /* of a mixture */

typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef int32_t bits __attribute__((vector_size(4 * WIDTH)));
typedef struct { vector part[PARTS]; } lanes; /* one number of each image */

enum kind {
    CONVOLVE, /* sum over taps of weights * source */
    MIX,      /* sum over taps of coefficient * source, channel by channel */
    PASS,     /* the source itself */
    FILL      /* the weights, one for each channel, at every pixel */
};

typedef struct {
    int64_t kind;
    int64_t source, target; /* offsets of feature maps in the workspace, in lanes */
    int64_t other;          /* a map to add to the result, or -1 */
    int64_t mask;           /* a map that must be above 0 for the result to be kept, or -1 */
    int64_t rectify;        /* keep only results above 0 */
    int64_t pixels, inputs, outputs; /* of the target; channels of the source; channels of the target */
    const int32_t *first_tap;        /* pixels + 1 */
    const int32_t *tap_pixel;
    const void *tap_value; /* int32 places in the kernel, or float coefficients of a mixture */
    const float *weights; /* [tile][kernel][input][output of the tile] */
    const float *bias;    /* or null */
    int64_t kernel;       /* places in the kernel */
    int64_t band;         /* pixels at a time, so that the part of the source that they read stays in cache */
} operation;

int tile_size(void) { return TILE; }

/* a * b + c, rounded once wherever the machine can: left to the compiler, it would depend on the size of a tile */
static inline vector multiply_add(vector a, float b, vector c)
{
#if defined(__FMA__) && WIDTH == 16
    return (vector)_mm512_fmadd_ps((__m512)a, _mm512_set1_ps(b), (__m512)c);
#elif defined(__FMA__)
    return (vector)_mm256_fmadd_ps((__m256)a, _mm256_set1_ps(b), (__m256)c);
#else
    return a * b + c;
#endif
}

/* value where gate is above 0 (or NaN, which is never hidden), else 0 */
static inline vector gated(vector value, vector gate) { return (vector)((bits)value & ~(gate <= 0.0f)); }

static inline void store(const operation *op, lanes *maps, int64_t at, int part, vector value)
{
    if (op->mask >= 0)
        value = gated(value, maps[op->mask + at].part[part]);
    if (op->other >= 0)
        value += maps[op->other + at].part[part];
    if (op->rectify)
        value = gated(value, value);
    maps[op->target + at].part[part] = value;
}

/* sum over taps and inputs of weight * source, for `size` output channels from `first` on, at one pixel */
static inline __attribute__((always_inline)) void tile(
    const int size, const operation *op, lanes *maps, int64_t pixel, int64_t first)
{
    vector sum[TILE][PARTS];
#pragma GCC unroll 24
    for (int t = 0; t < size; t++)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++)
            sum[t][part] = (vector){} + (op->bias ? op->bias[first + t] : 0.0f);
    const float *tile_weights = op->weights + first * op->kernel * op->inputs;
    for (int32_t tap = op->first_tap[pixel]; tap < op->first_tap[pixel + 1]; tap++) {
        const lanes *source = maps + op->source + op->tap_pixel[tap] * op->inputs;
        const float *weights = tile_weights + ((const int32_t *)op->tap_value)[tap] * op->inputs * size;
        for (int64_t input = 0; input < op->inputs; input++) {
            lanes value = source[input];
#pragma GCC unroll 24
            for (int t = 0; t < size; t++)
#pragma GCC unroll 2
                for (int part = 0; part < PARTS; part++)
                    sum[t][part] = multiply_add(value.part[part], weights[input * size + t], sum[t][part]);
        }
    }
#pragma GCC unroll 24
    for (int t = 0; t < size; t++)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++)
            store(op, maps, pixel * op->outputs + first + t, part, sum[t][part]);
}

#define REST(n) case n: for (int64_t p = from; p < to; p++) tile(n, op, maps, p, first); break;

/* Output channels outside, pixels inside: the weights of a tile stay in the nearest cache. */
static void convolve_band(const operation *op, lanes *maps, int64_t from, int64_t to)
{
    int64_t first = 0;
    for (; first + TILE <= op->outputs; first += TILE)
        for (int64_t pixel = from; pixel < to; pixel++)
            tile(TILE, op, maps, pixel, first);
    switch (op->outputs - first) {
        REST(1) REST(2) REST(3) REST(4) REST(5)
#if TILE > 6
        REST(6) REST(7) REST(8) REST(9) REST(10) REST(11)
#endif
#if TILE > 12
        REST(12) REST(13) REST(14) REST(15) REST(16) REST(17)
        REST(18) REST(19) REST(20) REST(21) REST(22) REST(23)
#endif
    }
}

/* sum over `taps` taps of coefficient * source, for all channels of one pixel; `bare`: nothing else is added or masked */
static inline __attribute__((always_inline)) void mix(
    const int taps, const int bare, const operation *op, lanes *maps, int64_t pixel)
{
    const lanes *from[MOST_TAPS];
    float by[MOST_TAPS];
#pragma GCC unroll 16
    for (int tap = 0; tap < taps; tap++) {
        from[tap] = maps + op->source + op->tap_pixel[op->first_tap[pixel] + tap] * op->outputs;
        by[tap] = ((const float *)op->tap_value)[op->first_tap[pixel] + tap];
    }
    for (int64_t channel = 0; channel < op->outputs; channel++)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++) {
            int64_t at = pixel * op->outputs + channel;
            vector value = (vector){} + (!bare && op->bias ? op->bias[channel] : 0.0f);
#pragma GCC unroll 16
            for (int tap = 0; tap < taps; tap++)
                value = multiply_add(from[tap][channel].part[part], by[tap], value);
            if (bare)
                maps[op->target + at].part[part] = value;
            else
                store(op, maps, at, part, value);
        }
}

#define MIX_CASE(n) case n: if (bare) mix(n, 1, op, maps, pixel); else mix(n, 0, op, maps, pixel); break;

static void mix_all(const operation *op, lanes *maps)
{
    const int bare = op->mask < 0 && op->other < 0 && !op->rectify && !op->bias;
    for (int64_t pixel = 0; pixel < op->pixels; pixel++) {
        int taps = op->first_tap[pixel + 1] - op->first_tap[pixel];
        switch (taps) { /* the usual numbers, unrolled */
            MIX_CASE(1) MIX_CASE(2) MIX_CASE(4) MIX_CASE(6) MIX_CASE(8) MIX_CASE(9) MIX_CASE(12) MIX_CASE(16)
        default:
            mix(taps, 0, op, maps, pixel);
        }
    }
}

static void run_one(const operation *op, lanes *maps)
{
    if (op->kind == MIX) {
        mix_all(op, maps);
        return;
    }
    if (op->kind == CONVOLVE) {
        for (int64_t from = 0; from < op->pixels; from += op->band)
            convolve_band(op, maps, from, from + op->band < op->pixels ? from + op->band : op->pixels);
        return;
    }
    for (int64_t pixel = 0; pixel < op->pixels; pixel++)
        for (int64_t channel = 0; channel < op->outputs; channel++)
            for (int part = 0; part < PARTS; part++) {
                int64_t at = pixel * op->outputs + channel;
                vector value = {};
                if (op->kind == PASS) {
                    value = maps[op->source + at].part[part];
                } else {
                    value += op->weights[channel];
                }
                store(op, maps, at, part, value);
            }
}

/* gradient[i] for the images first..last-1 of x, both (image, values) with values = channels * pixels */
void run(const operation *program, int64_t length, lanes *maps, int64_t input, int64_t output, int64_t channels,
         int64_t pixels, const float *x, float *gradient, int64_t first, int64_t last)
{
    for (int64_t block = first; block < last; block += IMAGES) {
        int64_t images = last - block < IMAGES ? last - block : IMAGES;
        float *map = (float *)(maps + input);
        if (images < IMAGES)
            memset(map, 0, sizeof(lanes) * channels * pixels);
        for (int64_t i = 0; i < images; i++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = 0; p < pixels; p++)
                    map[(p * channels + c) * IMAGES + i] = x[((block + i) * channels + c) * pixels + p];
        for (int64_t i = 0; i < length; i++)
            run_one(program + i, maps);
        map = (float *)(maps + output);
        for (int64_t i = 0; i < images; i++)
            for (int64_t c = 0; c < channels; c++)
                for (int64_t p = 0; p < pixels; p++)
                    gradient[((block + i) * channels + c) * pixels + p] = map[(p * channels + c) * IMAGES + i];
    }
}
