/* SPDX-License-Identifier: MIT */
/* Locks that are thread-local variables of main's, and of another thread's, lent to others by their addresses: who waits
 * for one is woken. */
#include "promise.h"

enum { THREADS = 3, TURNS = 300, LOCKED = 20000 };

struct lent {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_rwlock_t both;
	long turn, count;
};

static __thread struct lent own = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER,
				   .both = PTHREAD_RWLOCK_INITIALIZER};
static struct lent *lent;

static void *borrow(void *number)
{
	for (int i = 0; i < LOCKED; i++) {
		pthread_mutex_lock(&lent->lock);
		lent->count++;
		pthread_mutex_unlock(&lent->lock);
	}
	for (int i = 0; i < TURNS; i++) {
		pthread_mutex_lock(&lent->lock);
		while (lent->turn % THREADS != (long)number)
			pthread_cond_wait(&lent->changed, &lent->lock);
		lent->turn++;
		pthread_cond_broadcast(&lent->changed);
		pthread_mutex_unlock(&lent->lock);
	}
	for (int i = 0; i < LOCKED; i++) {
		pthread_rwlock_wrlock(&lent->both);
		lent->count++;
		pthread_rwlock_unlock(&lent->both);
	}
	return NULL;
}

static void *lend(void *unused)
{
	pthread_t thread[THREADS];
	lent = &own;
	for (long i = 0; i < THREADS; i++)
		thread[i] = start(borrow, (void *)i);
	for (int i = 0; i < THREADS; i++)
		join(thread[i]);
	PROMISE(own.count == 2 * THREADS * LOCKED && own.turn == THREADS * TURNS);
	return unused;
}

int main(void)
{
	lend(NULL);
	in_thread(lend, NULL);
	return 0;
}
