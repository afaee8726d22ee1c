/* Threads that are not Python's, and the signals that reach them. */
#ifndef CTRLCHAN_THREAD_SIGNALS_H
#define CTRLCHAN_THREAD_SIGNALS_H

#include <pthread.h>
#include <signal.h>

#ifdef SIGRTMIN
/* Lets a thread write its stack; see watchdog.h. */
#define STACK_SIGNAL (SIGRTMIN + 6)
#endif

/* Starts a thread that no signal handler runs on, but the one that writes its stack. Returns 0 or an error number. */
static inline int start_thread(pthread_t *thread, void *(*run)(void *), void *argument) {
    sigset_t all, before;
    int error;
    sigfillset(&all);
#ifdef STACK_SIGNAL
    sigdelset(&all, STACK_SIGNAL);
#endif
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
