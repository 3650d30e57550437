/* SPDX-License-Identifier: MIT */
/* Floating-point loops: matrix products and option prices (Black-Scholes). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 160 };

static double a[SIZE][SIZE], b[SIZE][SIZE], c[SIZE][SIZE];

static void multiply(void)
{
	for (int i = 0; i < SIZE; i++)
		for (int j = 0; j < SIZE; j++) {
			double sum = 0;

			for (int k = 0; k < SIZE; k++)
				sum += a[i][k] * b[k][j];
			c[i][j] = sum;
		}
}

static double price(double spot, double strike, double rate, double sigma, double years)
{
	double d1 = (log(spot / strike) + (rate + sigma * sigma / 2) * years) / (sigma * sqrt(years));
	double d2 = d1 - sigma * sqrt(years);

	return spot * 0.5 * erfc(-d1 / M_SQRT2) - strike * exp(-rate * years) * 0.5 * erfc(-d2 / M_SQRT2);
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? atol(argv[1]) : 10;
	double sum = 0;

	for (int i = 0; i < SIZE; i++)
		for (int j = 0; j < SIZE; j++) {
			a[i][j] = (i * 7 + j) % 13;
			b[i][j] = (i + j * 5) % 11;
		}
	for (long r = 0; r < rounds; r++) {
		multiply();
		sum += c[r % SIZE][(r * 3) % SIZE];
		for (int i = 0; i < 20000; i++)
			sum += price(100 + i % 10, 95 + i % 20, 0.02, 0.1 + (i % 7) * 0.05, 0.25 + i % 4);
	}
	printf("%.6f\n", sum);
	return 0;
}
