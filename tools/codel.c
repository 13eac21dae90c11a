/* Prints golden vectors of CoDel's decisions, by the arithmetic of Linux, for crates/link/src/queue/codel.txt.
 *
 *     cc -O2 -Wall -o /tmp/codel tools/codel.c && /tmp/codel > crates/link/src/queue/codel.txt
 *
 * Newton step, control law, should-drop and dequeue follow include/net/codel.h and codel_impl.h of Linux 6.1 line by line,
 * which are Copyright (C) 2011-2012 Kathleen Nichols, Van Jacobson, Michael D. Taht, Eric Dumazet, dual BSD / GPL v2; what
 * the kernel gives (queue, clock, marking) is the few lines below. Left out: ce_threshold.
 *
 * One line an event: "e TIME_NS LEN" a frame of LEN bytes arrives; "d TIME_NS ID COUNT ROOT DROPPING DROP_NEXT" a frame is
 * taken, ID is its number by arrival from 0 or -1, and the rest is the state afterwards (DROP_NEXT in steps of 1,024 ns).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;

#define CODEL_SHIFT 10
#define REC_INV_SQRT_BITS (8 * sizeof(u16))
#define REC_INV_SQRT_SHIFT (32 - REC_INV_SQRT_BITS)
typedef u32 codel_time_t;

#define codel_time_after(a, b) ((s32)((a) - (b)) > 0)
#define codel_time_after_eq(a, b) ((s32)((a) - (b)) >= 0)
#define codel_time_before(a, b) ((s32)((a) - (b)) < 0)

struct skb { u32 id, len; codel_time_t at; };
static struct skb ring[1 << 16];
static u32 head, tail, backlog;
static u64 clock_ns;

static struct { codel_time_t target, interval; u32 mtu; } params;
static struct {
	u32 count, lastcount;
	bool dropping;
	u16 rec_inv_sqrt;
	codel_time_t first_above_time, drop_next, ldelay;
} vars;

static u32 reciprocal_scale(u32 val, u32 ep_ro) { return (u32)(((u64)val * ep_ro) >> 32); }

static struct skb *dequeue_func(void)
{
	if (head == tail)
		return NULL;
	struct skb *skb = &ring[head++ & 0xffff];
	backlog -= skb->len;
	return skb;
}

static void codel_Newton_step(void)
{
	u32 invsqrt = ((u32)vars.rec_inv_sqrt) << REC_INV_SQRT_SHIFT;
	u32 invsqrt2 = ((u64)invsqrt * invsqrt) >> 32;
	u64 val = (3LL << 32) - ((u64)vars.count * invsqrt2);

	val >>= 2; /* avoid overflow in following multiply */
	val = (val * invsqrt) >> (32 - 2 + 1);
	vars.rec_inv_sqrt = val >> REC_INV_SQRT_SHIFT;
}

static codel_time_t codel_control_law(codel_time_t t)
{
	return t + reciprocal_scale(params.interval, (u32)vars.rec_inv_sqrt << REC_INV_SQRT_SHIFT);
}

static bool codel_should_drop(const struct skb *skb, codel_time_t now)
{
	bool ok_to_drop = false;

	if (!skb) {
		vars.first_above_time = 0;
		return false;
	}
	vars.ldelay = now - skb->at;
	if (codel_time_before(vars.ldelay, params.target) || backlog <= params.mtu) {
		vars.first_above_time = 0;
		return false;
	}
	if (vars.first_above_time == 0)
		vars.first_above_time = now + params.interval;
	else if (codel_time_after(now, vars.first_above_time))
		ok_to_drop = true;
	return ok_to_drop;
}

static struct skb *codel_dequeue(void)
{
	struct skb *skb = dequeue_func();
	codel_time_t now;
	bool drop;

	if (!skb) {
		vars.first_above_time = 0;
		vars.dropping = false;
		return skb;
	}
	now = clock_ns >> CODEL_SHIFT;
	drop = codel_should_drop(skb, now);
	if (vars.dropping) {
		if (!drop) {
			vars.dropping = false;
		} else if (codel_time_after_eq(now, vars.drop_next)) {
			while (vars.dropping && codel_time_after_eq(now, vars.drop_next)) {
				vars.count++;
				codel_Newton_step();
				skb = dequeue_func();
				if (!codel_should_drop(skb, now))
					vars.dropping = false;
				else
					vars.drop_next = codel_control_law(vars.drop_next);
			}
		}
	} else if (drop) {
		u32 delta;

		skb = dequeue_func();
		drop = codel_should_drop(skb, now);
		vars.dropping = true;
		delta = vars.count - vars.lastcount;
		if (delta > 1 && codel_time_before(now - vars.drop_next, 16 * params.interval)) {
			vars.count = delta;
			codel_Newton_step();
		} else {
			vars.count = 1;
			vars.rec_inv_sqrt = ~0U >> REC_INV_SQRT_SHIFT;
		}
		vars.lastcount = vars.count;
		vars.drop_next = codel_control_law(now);
	}
	return skb;
}

static u32 draws = 20261121;
static u32 draw(void) { return draws = draws * 1664525u + 1013904223u; }

int main(void)
{
	/* Frames are taken every 1.2 ms; the load swings: 0 too much, 1 far too much, 2 too little; once for longer than 8 intervals. */
	u64 next_in = 5000000, next_out = 6000000;
	u32 id = 0, taken = 0;

	params.target = 5000000 >> CODEL_SHIFT;
	params.interval = 100000000 >> CODEL_SHIFT;
	params.mtu = 1514;
	while (taken < 3000) {
		if (next_in <= next_out) {
			clock_ns = next_in;
			u32 len = 64 + (draw() >> 16) % 1451;
			ring[tail++ & 0xffff] = (struct skb){ id++, len, clock_ns >> CODEL_SHIFT };
			backlog += len;
			printf("e %llu %u\n", (unsigned long long)clock_ns, len);
			u32 load = taken > 1819 && taken < 2550 ? 2 : taken / (taken < 1500 ? 90 : 130) % 3;
			u32 mean = load == 0 ? 1050000 : load == 1 ? 950000 : 2600000;
			next_in += mean / 2 + (u32)(((u64)draw() * mean) >> 32);
		} else {
			clock_ns = next_out;
			struct skb *skb = codel_dequeue();
			taken++;
			printf("d %llu %d %u %u %d %u\n", (unsigned long long)clock_ns, skb ? (int)skb->id : -1,
			       vars.count, vars.rec_inv_sqrt, vars.dropping, vars.drop_next);
			next_out += 1200000;
		}
	}
	return 0;
}
