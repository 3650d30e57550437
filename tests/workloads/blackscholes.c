/* SPDX-License-Identifier: MIT */
/* Black-Scholes: the prices of SIZE European options, ten times over.
 * Stresses: computing on arrays that lie page to page, with nothing shared but the array of the results. */
#include "workload.h"

#include <math.h>

enum { REPEAT = 10 };

struct option {
	float spot, strike, rate, volatility, years;
};

static struct option *options;
static float *prices;

/* Abramowitz and Stegun, 26.2.17 */
static float normal_distribution(float x)
{
	float k = 1 / (1 + 0.2316419f * fabsf(x));
	float tail = 0.39894228f * expf(-x * x / 2) *
		     k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
	return x < 0 ? tail : 1 - tail;
}

static float call_price(const struct option *option)
{
	float deviation = option->volatility * sqrtf(option->years);
	float d1 = (logf(option->spot / option->strike) +
		    (option->rate + option->volatility * option->volatility / 2) * option->years) / deviation;
	return option->spot * normal_distribution(d1) -
	       option->strike * expf(-option->rate * option->years) * normal_distribution(d1 - deviation);
}

static void *price(void *argument)
{
	long id = (long)argument;
	for (int round = 0; round < REPEAT; round++)
		for (long i = share(size, id); i < share(size, id + 1); i++)
			prices[i] = call_price(&options[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(argc, argv, 2);
	options = allocate((size_t)size * sizeof *options);
	prices = allocate((size_t)size * sizeof *prices);
	for (long i = 0; i < size; i++)
		options[i] = (struct option){50 + (float)(i % 100), 40 + (float)(i % 77), 0.03f,
					     0.1f + (float)(i % 7) * 0.05f, 0.1f + (float)(i % 10) * 0.1f};
	in_threads(price);
	double sum = 0;
	for (long i = 0; i < size; i++)
		sum += prices[i];
	printf("%.6f\n", sum);
	return 0;
}
