/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/process.h"

static void a_process_comes_back_from_its_text(void **state)
{
        char text[PV_PROCESS_TEXT], none[PV_PROCESS_TEXT];
        struct pv_process self, read;
        pv_process_of(getpid(), &self);
        assert_int_equal(self.pid, getpid());
        size_t n = pv_process_format(&self, text);
        assert_int_equal(n, strlen(text));
        assert_int_equal(pv_process_format(&(struct pv_process){ 0 }, none), n); /* one fits over the other */
        assert_true(pv_process_parse(text, &read));
        assert_int_equal(read.pid, self.pid);
        assert_int_equal(read.start, self.start);
        assert_int_equal(read.ns, self.ns);
        assert_string_equal(read.boot, self.boot);
        assert_false(pv_process_parse(none, &read));
        assert_false(pv_process_parse("", &read));
        assert_false(pv_process_parse("1 2\n", &read));
}

static void it_is_told_by_more_than_its_pid(void **state)
{
        struct pv_process p;
        pv_process_of(getpid(), &p);
        assert_int_equal(pv_process_look(&p), PV_PROCESS_LIVES);
        p.start++;
        assert_int_equal(pv_process_look(&p), PV_PROCESS_GONE);
        p.ns++;
        assert_int_equal(pv_process_look(&p), PV_PROCESS_UNSEEN);
        pv_process_of(getpid(), &p);
        p.boot[0] = p.boot[0] == 'a' ? 'b' : 'a';
        assert_int_equal(pv_process_look(&p), PV_PROCESS_UNSEEN);
        assert_int_equal(pv_process_look(&(struct pv_process){ 0 }), PV_PROCESS_GONE);
}

static void its_end_is_waited_for(void **state)
{
        struct pv_process p;
        pid_t pid = fork();
        if (pid == 0) {
                (void)pause();
                _exit(0);
        }
        assert_true(pid > 0);
        pv_process_of(pid, &p);
        assert_int_equal(pv_process_await(&p, 20), PV_PROCESS_LIVES);
        assert_return_code(kill(pid, SIGKILL), 0);
        assert_int_equal(pv_process_await(&p, 60000), PV_PROCESS_GONE); /* though nobody reaped it */
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(pv_process_await(&p, 60000), PV_PROCESS_GONE);
}

/* The file has this text then. */
static bool is_note(int fd, const char *text, size_t n)
{
        assert_return_code(ftruncate(fd, 0), errno);
        assert_int_equal(pwrite(fd, text, n, 0), n);
        return pv_process_is_note(fd);
}

static void a_lock_with_a_note_is_told_from_a_file_of_somebody_else(void **state)
{
        char text[2 * PV_PROCESS_TEXT];
        struct pv_process self;
        pv_process_of(getpid(), &self);
        pv_auto_fd fd = memfd_create("lock", MFD_CLOEXEC);
        assert_return_code(fd, errno);
        assert_true(pv_process_is_note(fd));
        pv_process_note_none(fd); /* nothing was noted */
        assert_true(pv_process_is_note(fd));
        pv_process_note(fd, &self);
        assert_true(pv_process_is_note(fd));
        pv_process_note_over(fd);
        assert_true(pv_process_is_note(fd));
        pv_process_note_none(fd);
        assert_true(pv_process_is_note(fd));
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        assert_true(n > 0);
        text[n] = 'x';
        assert_true(is_note(fd, text, (size_t)n));
        assert_false(is_note(fd, text, (size_t)n + 1));
        assert_false(is_note(fd, text, (size_t)n - 1));
        text[n] = '\0';
        assert_false(is_note(fd, text, (size_t)n + 1));
        text[2] = 'x';
        assert_false(is_note(fd, text, (size_t)n));
        assert_false(is_note(fd, "precious\n", 9));
        assert_false(is_note(fd, "1 2 3 4\n", 8));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_process_comes_back_from_its_text),
                cmocka_unit_test(it_is_told_by_more_than_its_pid),
                cmocka_unit_test(its_end_is_waited_for),
                cmocka_unit_test(a_lock_with_a_note_is_told_from_a_file_of_somebody_else),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
