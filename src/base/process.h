/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process, named so that a file can hold it: by pid and start time, which name one process of a boot and a pid
 * namespace, and by those two. A lock tells that its holder is dead; this tells it of a process that holds none.
 */
#ifndef PV_BASE_PROCESS_H
#define PV_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/clock.h"

struct pv_process {
        pid_t pid;      /* in the pid namespace `ns`; 0: none */
        uint64_t start; /* clock ticks since boot, field 22 of proc(5)'s stat */
        uint64_t ns;    /* inode of that namespace */
        char boot[PV_BOOT_ID_TEXT];
};

/* Fills *out for a process of this namespace; pid 0 where proc(5) does not show it. */
void pv_process_of(pid_t pid, struct pv_process *out);

/* "PID START NS BOOT\n" at its full width, so that one can be written over another. The length. */
#define PV_PROCESS_TEXT 96
size_t pv_process_format(const struct pv_process *p, char out[PV_PROCESS_TEXT]);
/* False when text does not begin with one, or with one that is none. */
bool pv_process_parse(const char *text, struct pv_process *out);
enum pv_process_state {
        PV_PROCESS_GONE,   /* it is dead; of a namespace's first process: and with it all others in there */
        PV_PROCESS_LIVES,  /* or is dying: its files may be closed already, but what it is the first of may still act */
        PV_PROCESS_UNSEEN, /* of another pid namespace: not to be told from here */
};
enum pv_process_state pv_process_look(const struct pv_process *p);
/* Waits for its end, at most that long. */
enum pv_process_state pv_process_await(const struct pv_process *p, int timeout_ms);

/*
 * A lock that a run holds has its sandbox's first process noted in its file, for who finds it held although the run was
 * told as ended, or free although something of it still acts.
 */
void pv_process_note(int lock, const struct pv_process *first);
/* The lock is no run's any more. A file where nothing was noted stays empty. */
void pv_process_note_none(int lock);
/* The run's command and all that it started are dead; what is left is the supervisor's clearing up. */
void pv_process_note_over(int lock);
/* Is the run over, so that a lock that is held is let go of soon? False where none is noted. */
bool pv_process_noted_over(int lock);
/* What was noted lives on though it was waited for. */
bool pv_process_noted_lives(int lock, int timeout_ms);
/* Is nothing in that file but what these write there, or nothing at all? */
bool pv_process_is_note(int lock);

/* Is it ignored? Held back it is pending all the same. */
bool pv_signal_is_ignored(int sig);

#endif
