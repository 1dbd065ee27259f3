/* Runs the forward and backward pass of a small convolutional network on blocks of IMAGES images at a time.

   Images lie side by side in the innermost dimension: a feature map is [pixel][channel][image], and one `lanes` holds
   one channel of one pixel of a block. Every convolution, strided or not, forward or backward, is then the same
   sum over taps (a neighboring pixel, a place in the kernel) of a small matrix product, with no copying of patches,
   no products with padding, and the whole network of a block in cache. `program.py` makes the taps.

   With -DPAIRS=1, maps hold bfloat16: [pixel][pair of channels][image][channel of the pair], so that one `lanes` holds
   two channels, and one instruction (vdpbf16ps) multiplies and adds both. Sums stay in float32 and are rounded once,
   when they are stored. Processors without that instruction compute the same bits with two multiply-adds. Some maps
   stay in float32 (Winograd's sums, the gradient of x): `source_pairs` and `target_pairs` say which are which. */

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#ifndef IMAGES
#define IMAGES 16
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#if defined(__AVX512F__) && IMAGES >= 16
#define WIDTH 16 /* floats in a register */
#define SUMS 24  /* registers for sums: what is left of 32 */
#else
#define WIDTH 8
#define SUMS 12 /* what is left of 16 */
#endif
#define PARTS (IMAGES / WIDTH)
#define TILE (SUMS / PARTS) /* output channels at once; even, so that a pair of channels is never split */
#define MOST_TAPS 16        /* of a mixture */
#define INLINE static inline __attribute__((always_inline))

typedef float vector __attribute__((vector_size(4 * WIDTH)));
typedef int32_t bits __attribute__((vector_size(4 * WIDTH)));
typedef struct { vector part[PARTS]; } lanes; /* one number of each image, or a pair of them */

enum kind {
    CONVOLVE, /* sum over taps of weights * source */
    MIX,      /* sum over taps of coefficient * source, channel by channel */
    PASS,     /* the source itself */
    FILL,     /* the weights, one for each channel, at every pixel */
    REDUCE,   /* sum over pixels and channels of weights * source, and the bias: one number */
    GHOST,    /* fills the outer columns of a strip: see strips.py */
    SPREAD,   /* the source's one number times the weights, one for each channel, at every pixel */
    WEIGHTS,  /* the gradient of a convolution's weights: sum over taps and images of source * `other`, to `sums` */
    BIASES    /* the gradient of its biases: sum over pixels and images of `other`, to `sums` */
};
enum activation { LINEAR, RELU, LEAKY_RELU, SILU, SOFTPLUS, SOFT_LEAKY_RELU };
enum gating {
    POSITIVE, /* keep the result where the gate is above 0 */
    LEAKY,    /* multiply it by `parameter` elsewhere */
    FACTOR    /* multiply it by the gate */
};

typedef struct {
    int64_t kind;
    int64_t source, target; /* offsets of feature maps in the workspace, in lanes; or the target's in `sums` */
    int64_t other;          /* a map to add to the result, or -1 */
    int64_t gate, gating;   /* a map that the result is gated by before that, or -1; and how */
    int64_t activation;     /* of the result, last of all */
    int64_t derivative;     /* a map for the activation's derivative, or -1 */
    int64_t source_pairs, target_pairs; /* whether maps hold bfloat16; `other`, `gate`, `derivative` are as the target */
    int64_t pixels, inputs, outputs;    /* of the target; channels of the source; channels of the target */
    const int32_t *first_tap;           /* pixels + 1 */
    const int32_t *tap_pixel;
    const void *tap_value; /* int32 places in the kernel, or float coefficients of a mixture; or WEIGHTS, below */
    const void *weights;   /* [tile][kernel][input][output of the tile]: floats, or pairs of bfloat16 of two inputs */
    const float *bias;     /* or null */
    const int32_t *tiles;  /* sizes of tiles that the outputs are split into, with 0 after the last */
    int64_t kernel;        /* places in the kernel */
    int64_t band;          /* pixels at a time, so that the part of the source that they read stays in cache */
    double parameter;      /* LEAKY_RELU: slope; SOFTPLUS: beta; SOFT_LEAKY_RELU: a */
    double epsilon;        /* SOFT_LEAKY_RELU */
} operation;

/* WEIGHTS: first_tap is of each place in the kernel, and tap_value the pixel of `other`. `band` and `pixels` are the
   numbers of pixels that it reads of the source and of `other`. `derivative` is memory of its own. */

INLINE vector filled(float value) { return value - (vector){}; } /* 0 + value would be computed, for the sake of -0 */

/* a * b + c, rounded once wherever the machine can: left to the compiler, it would depend on the size of a tile */
INLINE vector multiply_add(vector a, vector b, vector c)
{
#if defined(__FMA__) && WIDTH == 16
    return (vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

INLINE vector chosen(bits where, vector yes, vector no) { return (vector)((where & (bits)yes) | (~where & (bits)no)); }

/* ---- bfloat16: the even channel of a pair is in the lower half of 32 bits ---- */

INLINE vector even(vector pairs) { return (vector)((bits)pairs << 16); }
INLINE vector odd(vector pairs) { return (vector)((bits)pairs & (int32_t)0xffff0000); }

/* as bfloat16 in the upper half: to nearest, ties to even; NaN stays NaN, denormals are 0, as the instruction does */
INLINE bits rounded(vector value)
{
    bits x = (bits)value;
    bits nearest = x + 0x7fff + ((x >> 16) & 1);
    bits nan = value != value, tiny = (x & 0x7f800000) == 0;
    x = (nan & (x | 0x400000)) | (~nan & nearest);
    return ((tiny & (x & (int32_t)0x80000000)) | (~tiny & x)) & (int32_t)0xffff0000;
}

INLINE uint16_t bfloat16(float value)
{
    uint32_t x;
    memcpy(&x, &value, 4);
    if (value != value)
        return (x >> 16) | 0x40;
    return (x & 0x7f800000) == 0 ? (x >> 16) & 0x8000 : (x + 0x7fff + ((x >> 16) & 1)) >> 16;
}

INLINE vector paired(vector low, vector high)
{
#if defined(__AVX512BF16__) && defined(__AVX512BW__) && WIDTH == 16
    const __m512i interleave = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vector)_mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
#else
    return (vector)(rounded(high) | ((rounded(low) >> 16) & 0xffff));
#endif
}

/* sum + the products of both channels of a pair, first the odd one's; each product is exact, each sum rounded */
INLINE vector add_products(vector sum, vector pairs, int32_t weights)
{
#if defined(__AVX512BF16__) && WIDTH == 16
    return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(__m512)pairs, (__m512bh)_mm512_set1_epi32(weights));
#elif defined(__AVX512BF16__) && defined(__AVX512VL__) && WIDTH == 8
    return (vector)_mm256_dpbf16_ps((__m256)sum, (__m256bh)(__m256)pairs, (__m256bh)_mm256_set1_epi32(weights));
#else
    vector both = (vector)((bits){} + weights);
    return multiply_add(even(pairs), even(both), multiply_add(odd(pairs), odd(both), sum));
#endif
}

/* ---- activations ---- */

INLINE vector square_root(vector x)
{
#if defined(__AVX512F__) && WIDTH == 16
    return (vector)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX__)
    return (vector)_mm256_sqrt_ps((__m256)x);
#else
    vector root;
    for (int i = 0; i < WIDTH; i++)
        root[i] = __builtin_sqrtf(x[i]);
    return root;
#endif
}

/* exp(x) to 2 units in the last place: 2^n exp(r), |r| <= log(2) / 2, by a polynomial */
INLINE vector exponential(vector x)
{
    vector within = chosen(x < -87.0f, filled(-87.0f), chosen(x > 88.0f, filled(88.0f), x));
    const vector magic = filled(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, in the lowest bits */
    vector shifted = multiply_add(within, filled(1.44269504f), magic), n = shifted - magic;
    vector r = multiply_add(n, filled(-0.693359375f), within);
    r = multiply_add(n, filled(2.12194440e-4f), r);
    vector p = filled(1.9875691500e-4f);
    p = multiply_add(p, r, filled(1.3981999507e-3f));
    p = multiply_add(p, r, filled(8.3334519073e-3f));
    p = multiply_add(p, r, filled(4.1665795894e-2f));
    p = multiply_add(p, r, filled(1.6666665459e-1f));
    p = multiply_add(p, r, filled(5.0000001201e-1f));
    p = multiply_add(p, r * r, r + 1.0f);
    return chosen(x != x, x, (vector)((bits)p + ((bits)shifted << 23)));
}

/* log(1 + z) for z from 0 to 1: 2 artanh(z / (2 + z)) */
INLINE vector log_1_plus(vector z)
{
    vector u = z / (z + 2.0f), s = u * u, p = filled(2.0f / 11);
    p = multiply_add(p, s, filled(2.0f / 9));
    p = multiply_add(p, s, filled(2.0f / 7));
    p = multiply_add(p, s, filled(2.0f / 5));
    p = multiply_add(p, s, filled(2.0f / 3));
    p = multiply_add(p, s, filled(2.0f));
    return p * u;
}

INLINE vector activated(const operation *op, vector x, vector *derivative)
{
    const vector one = filled(1.0f), zero = {};
    const float a = (float)op->parameter, e = (float)op->epsilon;
    switch (op->activation) {
    case RELU:
        *derivative = chosen(x <= 0.0f, zero, one);
        return chosen(x <= 0.0f, zero, x); /* NaN is never hidden */
    case LEAKY_RELU:
        *derivative = chosen(x <= 0.0f, filled(a), one);
        return x * *derivative;
    case SILU: {
        vector sigmoid = 1.0f / (exponential(-x) + 1.0f);
        *derivative = multiply_add(x * sigmoid, 1.0f - sigmoid, sigmoid);
        return x * sigmoid;
    }
    case SOFTPLUS: { /* log(1 + exp(a x)) / a = max(x, 0) + log(1 + exp(-|a x|)) / a */
        vector small = exponential(chosen(x <= 0.0f, x, -x) * a);
        *derivative = chosen(x <= 0.0f, small, one) / (small + 1.0f);
        return chosen(x <= 0.0f, zero, x) + log_1_plus(small) / a;
    }
    case SOFT_LEAKY_RELU: { /* (1 - a) x + a sqrt(x^2 + e^2) - a e */
        vector root = square_root(multiply_add(x, x, filled(e * e)));
        *derivative = a * (x / root) + (1.0f - a);
        return multiply_add(x, filled(1.0f - a), a * (root - e));
    }
    default:
        *derivative = one;
        return x;
    }
}

/* ---- storing results ---- */

INLINE vector gated(const operation *op, vector value, vector gate)
{
    if (op->gating == FACTOR)
        return value * gate;
    if (op->gating == LEAKY)
        return chosen(gate <= 0.0f, value * (float)op->parameter, value);
    return (vector)((bits)value & ~(gate <= 0.0f)); /* kept where the gate is NaN */
}

/* Lanes of a pixel, of so many channels. */
INLINE int64_t across(int64_t channels, int64_t pairs) { return pairs ? (channels + 1) / 2 : channels; }

#define AT(map) maps[(map) + at].part[part]

/* One channel, to a map of float32. `smooth`: whether there is an activation other than RELU, or a derivative. */
INLINE void store(const operation *op, const int smooth, lanes *maps, int64_t at, int part, vector value)
{
    if (op->gate >= 0)
        value = gated(op, value, AT(op->gate));
    if (op->other >= 0)
        value += AT(op->other);
    if (smooth) {
        vector derivative;
        value = activated(op, value, &derivative);
        if (op->derivative >= 0)
            AT(op->derivative) = derivative;
    } else if (op->activation == RELU) {
        value = (vector)((bits)value & ~(value <= 0.0f));
    }
    AT(op->target) = value;
}

/* Two channels, to a map of bfloat16. */
INLINE void store_pair(const operation *op, const int smooth, lanes *maps, int64_t at, int part, vector low, vector high)
{
    if (op->gate >= 0) {
        vector gate = AT(op->gate);
        low = gated(op, low, even(gate));
        high = gated(op, high, odd(gate));
    }
    if (op->other >= 0) {
        vector other = AT(op->other);
        low += even(other);
        high += odd(other);
    }
    if (smooth) {
        vector of_low, of_high;
        low = activated(op, low, &of_low);
        high = activated(op, high, &of_high);
        if (op->derivative >= 0)
            AT(op->derivative) = paired(of_low, of_high);
    } else if (op->activation == RELU) {
        low = (vector)((bits)low & ~(low <= 0.0f));
        high = (vector)((bits)high & ~(high <= 0.0f));
    }
    AT(op->target) = paired(low, high);
}

INLINE int is_smooth(const operation *op) { return op->activation > RELU || op->derivative >= 0; }

/* `size` channels of a pixel from `first` on, which is even */
INLINE void store_all(
    const int size, const int smooth, const operation *op, lanes *maps, int64_t pixel, int64_t first,
    vector sum[][PARTS])
{
    const int64_t row = pixel * across(op->outputs, PAIRS && op->target_pairs);
    if (PAIRS && op->target_pairs) {
#pragma GCC unroll 12
        for (int t = 0; t < size; t += 2)
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++)
                store_pair(op, smooth, maps, row + (first + t) / 2, part, sum[t][part],
                           t + 1 < size ? sum[t + 1][part] : (vector){});
    } else {
#pragma GCC unroll 24
        for (int t = 0; t < size; t++)
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++)
                store(op, smooth, maps, row + first + t, part, sum[t][part]);
    }
}

/* The same for smooth activations: not unrolled, and once for all sizes. */
static __attribute__((noinline)) void store_smooth(
    const operation *op, lanes *maps, int64_t pixel, int64_t first, int size, vector sum[][PARTS])
{
    for (int t = 0; t < size; t += 2)
        if (t + 1 < size)
            store_all(2, 1, op, maps, pixel, first + t, sum + t);
        else
            store_all(1, 1, op, maps, pixel, first + t, sum + t);
}

INLINE void store_tile(
    const int size, const operation *op, lanes *maps, int64_t pixel, int64_t first, vector sum[][PARTS])
{
    if (is_smooth(op)) {
        vector kept[TILE][PARTS];
#pragma GCC unroll 24
        for (int t = 0; t < size; t++)
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++)
                kept[t][part] = sum[t][part]; /* memcpy would keep the sums out of registers */
        store_smooth(op, maps, pixel, first, size, kept);
    } else {
        store_all(size, 0, op, maps, pixel, first, sum);
    }
}

/* ---- operations ---- */

/* sum over taps and inputs of weight * source, for `size` output channels from `first` on, at `block` pixels in a row:
   few channels of one pixel alone would wait for each other's sums */
INLINE void tile(const int size, const int block, const operation *op, lanes *maps, int64_t pixel, int64_t first)
{
    vector sum[SUMS][PARTS];
#pragma GCC unroll 24
    for (int s = 0; s < size * block; s++)
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++)
            sum[s][part] = filled(op->bias ? op->bias[first + s % size] : 0.0f);
    const int64_t inputs = across(op->inputs, PAIRS);
    const int32_t *tile_weights = (const int32_t *)op->weights + first * op->kernel * inputs;
    const int32_t begin = op->first_tap[pixel], taps = op->first_tap[pixel + 1] - begin;
    for (int32_t tap = begin; tap < begin + taps; tap++) {
        const lanes *source[4];
#pragma GCC unroll 4
        for (int q = 0; q < block; q++)
            source[q] = maps + op->source + op->tap_pixel[tap + q * taps] * inputs;
        const int32_t *weights = tile_weights + ((const int32_t *)op->tap_value)[tap] * inputs * size;
        for (int64_t input = 0; input < inputs; input++)
#pragma GCC unroll 4
            for (int q = 0; q < block; q++) {
                lanes value = source[q][input];
#pragma GCC unroll 24
                for (int t = 0; t < size; t++)
#pragma GCC unroll 2
                    for (int part = 0; part < PARTS; part++) {
                        const int s = q * size + t;
#if PAIRS
                        sum[s][part] = add_products(sum[s][part], value.part[part], weights[input * size + t]);
#else
                        const vector weight = filled(((const float *)weights)[input * size + t]);
                        sum[s][part] = multiply_add(value.part[part], weight, sum[s][part]);
#endif
                    }
            }
    }
#pragma GCC unroll 4
    for (int q = 0; q < block; q++)
        store_tile(size, op, maps, pixel + q, first, sum + q * size);
}

/* whether the taps of `block` pixels in a row are at the same places of the kernel */
INLINE int alike(const operation *op, int64_t pixel, const int block)
{
    const int32_t *places = op->tap_value, *first = op->first_tap + pixel;
    const int32_t taps = first[1] - first[0];
    for (int q = 1; q < block; q++)
        if (first[q + 1] - first[q] != taps || memcmp(places + first[0], places + first[q], sizeof(int32_t) * taps))
            return 0;
    return 1;
}

INLINE void tile_all(const int size, const operation *op, lanes *maps, int64_t from, int64_t to, int64_t first)
{
    const int block = TILE / size >= 4 ? 4 : TILE / size >= 2 ? 2 : 1;
    for (int64_t pixel = from; pixel < to;)
        if (block > 1 && pixel + block <= to && alike(op, pixel, block)) {
            tile(size, block, op, maps, pixel, first);
            pixel += block;
        } else {
            tile(size, 1, op, maps, pixel, first);
            pixel++;
        }
}

/* the sizes of a tile that there are, descending, with 0 after the last; odd ones can only come last */
static const int32_t sizes[] = {
#if TILE >= 24
    24, 16,
#endif
#if TILE >= 12
    12, 8,
#endif
    6, 4, 3, 2, 1, 0};

const int32_t *tile_sizes(void) { return sizes; }

#define TILES(n) case n: tile_all(n, op, maps, from, to, first); break;

/* Output channels outside, pixels inside: the weights of a tile stay in the nearest cache. */
static void convolve_band(const operation *op, lanes *maps, int64_t from, int64_t to)
{
    int64_t first = 0;
    for (const int32_t *size = op->tiles; *size; first += *size++)
        switch (*size) {
            TILES(1) TILES(2) TILES(3) TILES(4) TILES(6)
#if TILE >= 12
            TILES(8) TILES(12)
#endif
#if TILE >= 24
            TILES(16) TILES(24)
#endif
        }
}

/* a coefficient, which bfloat16 holds exactly, as the lower half of a pair */
INLINE int32_t as_pair(float coefficient)
{
    int32_t pair;
    memcpy(&pair, &coefficient, 4);
    return (pair >> 16) & 0xffff;
}

/* sum over `taps` taps of coefficient * source, for all channels of one pixel */
INLINE void mix(const int taps, const int source_pairs, const operation *op, lanes *maps, int64_t pixel)
{
    const int64_t stride = across(op->outputs, source_pairs);
    const int smooth = is_smooth(op);
    const lanes *from[MOST_TAPS];
    float by[MOST_TAPS];
#pragma GCC unroll 16
    for (int tap = 0; tap < taps; tap++) {
        from[tap] = maps + op->source + op->tap_pixel[op->first_tap[pixel] + tap] * stride;
        by[tap] = ((const float *)op->tap_value)[op->first_tap[pixel] + tap];
    }
    for (int64_t channel = 0; channel < op->outputs; channel += 2) {
        const int last = channel + 1 == op->outputs; /* one channel is left */
        vector sum[2][PARTS];
#pragma GCC unroll 2
        for (int part = 0; part < PARTS; part++) {
            sum[0][part] = filled(op->bias ? op->bias[channel] : 0.0f);
            sum[1][part] = filled(op->bias && !last ? op->bias[channel + 1] : 0.0f);
#pragma GCC unroll 16
            for (int tap = 0; tap < taps; tap++) {
                if (source_pairs) {
                    vector both = from[tap][channel / 2].part[part];
                    sum[0][part] = add_products(sum[0][part], both, as_pair(by[tap]));
                    sum[1][part] = add_products(sum[1][part], both, as_pair(by[tap]) << 16);
                } else {
                    sum[0][part] = multiply_add(from[tap][channel].part[part], filled(by[tap]), sum[0][part]);
                    if (!last)
                        sum[1][part] = multiply_add(from[tap][channel + 1].part[part], filled(by[tap]), sum[1][part]);
                }
            }
        }
        if (smooth)
            store_smooth(op, maps, pixel, channel, 2 - last, sum);
        else if (last)
            store_all(1, 0, op, maps, pixel, channel, sum);
        else
            store_all(2, 0, op, maps, pixel, channel, sum);
    }
}

#define MIX_CASE(n) case n: mix(n, source_pairs, op, maps, pixel); break;

INLINE void mix_all(const int source_pairs, const operation *op, lanes *maps)
{
    for (int64_t pixel = 0; pixel < op->pixels; pixel++) {
        int taps = op->first_tap[pixel + 1] - op->first_tap[pixel];
        switch (taps) { /* the usual numbers, unrolled */
            MIX_CASE(1) MIX_CASE(2) MIX_CASE(4) MIX_CASE(6) MIX_CASE(8) MIX_CASE(9) MIX_CASE(12) MIX_CASE(16)
        default:
            mix(taps, source_pairs, op, maps, pixel);
        }
    }
}

/* a channel of a map, as float32 */
INLINE vector read(const lanes *map, int64_t pairs, int64_t pixel, int64_t channel, int64_t channels, int part)
{
    vector found = map[pixel * across(channels, pairs) + (pairs ? channel / 2 : channel)].part[part];
    return !pairs ? found : channel % 2 ? odd(found) : even(found);
}

static void pass_or_fill(const operation *op, lanes *maps)
{
    const lanes *source = maps + op->source;
    const float *weights = op->weights;
    for (int64_t pixel = 0; pixel < op->pixels; pixel++)
        for (int64_t first = 0; first < op->outputs; first += 2) {
            const int size = first + 1 < op->outputs ? 2 : 1;
            vector value[2][PARTS];
            for (int t = 0; t < size; t++)
                for (int part = 0; part < PARTS; part++)
                    value[t][part] = op->kind == FILL     ? filled(weights[first + t])
                                     : op->kind == SPREAD ? source->part[part] * weights[first + t]
                                     : read(source, op->source_pairs, pixel, first + t, op->outputs, part);
            if (is_smooth(op))
                store_smooth(op, maps, pixel, first, size, value);
            else if (size == 2)
                store_all(2, 0, op, maps, pixel, first, value);
            else
                store_all(1, 0, op, maps, pixel, first, value);
        }
}

static void reduce(const operation *op, lanes *maps)
{
    const float *weights = op->weights;
    for (int part = 0; part < PARTS; part++) {
        vector sum = {};
        for (int64_t pixel = 0; pixel < op->pixels; pixel++) {
            vector of_pixel = {};
            for (int64_t channel = 0; channel < op->inputs; channel++)
                of_pixel = multiply_add(read(maps + op->source, op->source_pairs, pixel, channel, op->inputs, part),
                                        filled(weights[channel]), of_pixel);
            sum += of_pixel;
        }
        maps[op->target].part[part] = sum + (op->bias ? op->bias[0] : 0.0f);
    }
}

/* The outer columns of each of `pixels` rows, `kernel` columns wide, become their neighbors' outermost own ones. */
static void fill_ghosts(const operation *op, lanes *maps)
{
    const int64_t channels = across(op->inputs, op->source_pairs), width = op->kernel;
    const int32_t *left = op->tap_pixel, *right = left + IMAGES;
    for (int64_t row = 0; row < op->pixels; row++) {
        float *line = (float *)(maps + op->target + row * width * channels);
        for (int64_t channel = 0; channel < channels; channel++) {
            float *first = line + channel * IMAGES, *last = first + (width - 1) * channels * IMAGES;
            const float *before = last - channels * IMAGES, *after = first + channels * IMAGES;
            for (int i = 0; i < IMAGES; i++) {
                first[i] = left[i] < 0 ? 0.0f : before[left[i]];
                last[i] = right[i] < 0 ? 0.0f : after[right[i]];
            }
        }
    }
}

/* ---- gradients of weights, in float32 ---- */

#if WIDTH == 16
#define ROWS 4 /* inputs and outputs at once: ROWS * COLUMNS sums over pixels and images, one register each */
#else
#define ROWS 2
#endif
#define COLUMNS 4

INLINE float total(vector value)
{
#if WIDTH == 16
    return _mm512_reduce_add_ps((__m512)value);
#else
    float halves[4];
    for (int i = 0; i < 4; i++)
        halves[i] = value[i] + value[i + 4];
    return (halves[0] + halves[2]) + (halves[1] + halves[3]);
#endif
}

INLINE int64_t tiles_of(int64_t channels, int64_t size) { return (channels + size - 1) / size; }

/* [pixel][channel] -> [tile of channels][pixel][channel of the tile], with zeros for channels that are missing. The
   channels of a tile would otherwise lie a power of 2 apart from pixel to pixel, and push each other out of the cache. */
INLINE void gather(lanes *to, const lanes *map, int64_t pixels, int64_t channels, const int size)
{
    const lanes zeros = {};
    for (int64_t first = 0; first < channels; first += size)
        for (int64_t pixel = 0; pixel < pixels; pixel++)
            for (int c = 0; c < size; c++)
                *to++ = first + c < channels ? map[pixel * channels + first + c] : zeros;
}

static void weights(const operation *op, lanes *maps, float *sums)
{
    const int64_t inputs = op->inputs, outputs = op->outputs;
    lanes *sources = maps + op->derivative, *others = sources + tiles_of(inputs, ROWS) * op->band * ROWS;
    gather(sources, maps + op->source, op->band, inputs, ROWS);
    gather(others, maps + op->other, op->pixels, outputs, COLUMNS);
    const int32_t *pixels = op->tap_value;
    for (int64_t input = 0; input < inputs; input += ROWS, sources += op->band * ROWS) {
        const lanes *other = others;
        for (int64_t output = 0; output < outputs; output += COLUMNS, other += op->pixels * COLUMNS)
            for (int64_t place = 0; place < op->kernel; place++) {
                vector sum[ROWS][COLUMNS] = {};
                for (int32_t tap = op->first_tap[place]; tap < op->first_tap[place + 1]; tap++)
#pragma GCC unroll 2
                    for (int part = 0; part < PARTS; part++) {
                        vector by[ROWS];
#pragma GCC unroll 4
                        for (int r = 0; r < ROWS; r++)
                            by[r] = sources[op->tap_pixel[tap] * ROWS + r].part[part];
#pragma GCC unroll 4
                        for (int c = 0; c < COLUMNS; c++) {
                            vector value = other[pixels[tap] * COLUMNS + c].part[part];
#pragma GCC unroll 4
                            for (int r = 0; r < ROWS; r++)
                                sum[r][c] = multiply_add(by[r], value, sum[r][c]);
                        }
                    }
                float *to = sums + op->target + (output * inputs + input) * op->kernel + place;
#pragma GCC unroll 4
                for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
                    for (int c = 0; c < COLUMNS; c++)
                        if (input + r < inputs && output + c < outputs)
                            to[(c * inputs + r) * op->kernel] += total(sum[r][c]);
            }
    }
}

static void biases(const operation *op, const lanes *maps, float *sums)
{
    const lanes *other = maps + op->other;
    for (int64_t first = 0; first < op->outputs; first += COLUMNS) {
        const int64_t size = op->outputs - first < COLUMNS ? op->outputs - first : COLUMNS;
        vector sum[COLUMNS] = {};
        for (int64_t pixel = 0; pixel < op->pixels; pixel++)
            for (int64_t c = 0; c < size; c++)
                for (int part = 0; part < PARTS; part++)
                    sum[c] += other[pixel * op->outputs + first + c].part[part];
        for (int64_t c = 0; c < size; c++)
            sums[op->target + first + c] += total(sum[c]);
    }
}

static void run_one(const operation *op, lanes *maps, float *sums)
{
    if (op->kind == MIX) {
        if (PAIRS && op->source_pairs)
            mix_all(1, op, maps);
        else
            mix_all(0, op, maps);
    } else if (op->kind == CONVOLVE) {
        for (int64_t from = 0; from < op->pixels; from += op->band)
            convolve_band(op, maps, from, from + op->band < op->pixels ? from + op->band : op->pixels);
    } else if (op->kind == REDUCE) {
        reduce(op, maps);
    } else if (op->kind == GHOST) {
        fill_ghosts(op, maps);
    } else if (op->kind == WEIGHTS) {
        weights(op, maps, sums);
    } else if (op->kind == BIASES) {
        biases(op, maps, sums);
    } else {
        pass_or_fill(op, maps);
    }
}

typedef struct {
    int64_t input, output, reduced;   /* offsets of the maps of x, of its gradient, and of the energy */
    int64_t channels, pixels;         /* of x */
    int64_t strips;                   /* that an image is cut into: a block holds IMAGES / strips images */
    int64_t map_pixels;               /* of the map of x, with the outer columns of strips */
    const int32_t *pixel_of, *strip_of; /* where each pixel of an image lies */
} layout;

/* x (image, channel, pixel) as a map; images that are missing in a block are 0 */
static void load_images(lanes *map, const float *x, int64_t images, const layout *at)
{
    float *values = (float *)map;
    if (images * at->strips < IMAGES || at->strips > 1 || PAIRS)
        memset(map, 0, sizeof(lanes) * across(at->channels, PAIRS) * at->map_pixels);
    for (int64_t i = 0; i < images; i++)
        for (int64_t c = 0; c < at->channels; c++, x += at->pixels)
            for (int64_t p = 0; p < at->pixels; p++) {
                const int64_t pixel = at->pixel_of[p], place = i * at->strips + at->strip_of[p];
#if PAIRS
                const int64_t lane = (pixel * across(at->channels, 1) + c / 2) * IMAGES + place;
                ((uint16_t *)values)[2 * lane + c % 2] = bfloat16(x[p]);
#else
                values[(pixel * at->channels + c) * IMAGES + place] = x[p];
#endif
            }
}

static void store_images(const lanes *map, float *gradient, int64_t images, const layout *at)
{
    const float *values = (const float *)map;
    for (int64_t i = 0; i < images; i++)
        for (int64_t c = 0; c < at->channels; c++, gradient += at->pixels)
            for (int64_t p = 0; p < at->pixels; p++)
                gradient[p] = values[(at->pixel_of[p] * at->channels + c) * IMAGES + i * at->strips + at->strip_of[p]];
}

/* Denormals are 0 within a program of bfloat16, as the instruction has them. */
INLINE unsigned without_denormals(void)
{
#if PAIRS && defined(__SSE__)
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
#else
    return 0;
#endif
}

INLINE void restore(unsigned mode)
{
#if PAIRS && defined(__SSE__)
    _mm_setcsr(mode);
#else
    (void)mode;
#endif
}

/* gradient[i], and energy[i] unless it is null, for the images first..last-1 of x; x and gradient are (image, values)
   with values = channels * pixels */
void run(const operation *program, int64_t length, lanes *maps, const layout *at, const float *x, float *gradient,
         float *energy, int64_t first, int64_t last)
{
    const int64_t each = IMAGES / at->strips, values = at->channels * at->pixels;
    const unsigned mode = without_denormals();
    for (int64_t block = first; block < last; block += each) {
        const int64_t images = last - block < each ? last - block : each;
        load_images(maps + at->input, x + block * values, images, at);
        for (int64_t i = 0; i < length; i++)
            run_one(program + i, maps, 0);
        store_images(maps + at->output, gradient + block * values, images, at);
        const float *parts = (const float *)(maps + at->reduced);
        for (int64_t i = 0; energy && i < images; i++) {
            energy[block + i] = 0.0f;
            for (int64_t s = 0; s < at->strips; s++)
                energy[block + i] += parts[i * at->strips + s];
        }
    }
    restore(mode);
}

/* energy[i] of the images first..last-1 of x, and the gradient of sum over them of factors[i] * energy[i] with respect
   to the weights, which is added to `sums`; the output is a map of one number, the factor. Images are not in strips. */
void learn(const operation *program, int64_t length, lanes *maps, const layout *at, const float *x,
           const float *factors, float *energy, float *sums, int64_t first, int64_t last)
{
    const unsigned mode = without_denormals();
    for (int64_t block = first; block < last; block += IMAGES) {
        const int64_t images = last - block < IMAGES ? last - block : IMAGES;
        load_images(maps + at->input, x + block * at->channels * at->pixels, images, at);
        memset(maps + at->output, 0, sizeof(lanes)); /* images that are missing in a block add nothing */
        memcpy(maps + at->output, factors + block, sizeof(float) * images);
        for (int64_t i = 0; i < length; i++)
            run_one(program + i, maps, sums);
        memcpy(energy + block, maps + at->reduced, sizeof(float) * images);
    }
    restore(mode);
}
