/* SPDX-License-Identifier: MIT */
/* Swaptions: Monte-Carlo prices of 64 options on interest swaps, SIZE simulated forward curves for each.
 * Stresses: allocating within the computation, without any synchronisation. */
#include "workload.h"

#include <math.h>

enum { SWAPTIONS = 64, TENORS = 12, FACTORS = 3 };

static const double volatility[FACTORS] = {0.010, 0.006, 0.003};
static const double period = 0.5; /* years */
static double prices[SWAPTIONS];

static double uniform(uint64_t *state) { return ((double)(next_random(state) >> 11) + 0.5) * 0x1p-53; }

/* Box and Muller */
static double normal(uint64_t *state)
{
	double radius = sqrt(-2 * log(uniform(state)));
	return radius * cos(6.283185307179586 * uniform(state));
}

/* One simulated curve: what the swaption is worth at its end, discounted to now. */
static double simulate(double strike, int expiry, uint64_t *state)
{
	double *forward = malloc(TENORS * sizeof *forward), *shock = malloc(FACTORS * sizeof *shock);
	double discount = 1, swap = 0, bond = 1;
	if (!forward || !shock)
		fail("malloc");
	for (int tenor = 0; tenor < TENORS; tenor++)
		forward[tenor] = 0.03 + 0.001 * tenor;
	for (int step = 0; step < expiry; step++) {
		discount *= exp(-forward[step] * period);
		for (int factor = 0; factor < FACTORS; factor++)
			shock[factor] = normal(state) * sqrt(period) * volatility[factor];
		for (int tenor = step + 1; tenor < TENORS; tenor++)
			forward[tenor] += shock[0] + shock[1] * (1 - 2.0 * tenor / TENORS) +
					  shock[2] * cos(6.0 * tenor / TENORS);
	}
	for (int tenor = expiry; tenor < TENORS; tenor++) {
		bond *= exp(-forward[tenor] * period);
		swap += period * (forward[tenor] - strike) * bond;
	}
	free(shock);
	free(forward);
	return swap > 0 ? swap * discount : 0;
}

static void *price(void *argument)
{
	long id = (long)argument;
	for (long i = share(SWAPTIONS, id); i < share(SWAPTIONS, id + 1); i++) {
		uint64_t state = random_seed((uint64_t)i);
		double sum = 0;
		for (long trial = 0; trial < size; trial++)
			sum += simulate(0.02 + 0.0005 * (double)i, 1 + (int)(i % 8), &state);
		prices[i] = sum / (double)size;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	in_threads(price);
	double sum = 0;
	for (int i = 0; i < SWAPTIONS; i++)
		sum += prices[i];
	printf("first %.9f last %.9f all %.9f\n", prices[0], prices[SWAPTIONS - 1], sum);
	return 0;
}
