/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the control socket, and refusals that a client reads in them. */
#include <sys/socket.h>
#include <unistd.h>
#include "job/control_packet.h"
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("{\"verb\":\"state\"}"),
        PV_FUZZ_SEED("{\"verb\":\"exec\",\"argv\":[\"sh\",{\"bytes\":\"ff00\"}],\"terminal\":true,\"rows\":24}"),
        PV_FUZZ_SEED("{\"ok\":false,\"kind\":\"busy\",\"error\":\"why\",\"hint\":{\"bytes\":\"c3\"}}"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static int pair[2] = { -1, -1 };
        pv_auto_control_packet p = PV_CONTROL_PACKET_INIT;
        struct pv_err err = PV_ERR_INIT, told = PV_ERR_INIT;
        if (pair[0] < 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                __builtin_trap();
        if (size == 0 || send(pair[0], data, size, MSG_DONTWAIT) != (ssize_t)size)
                return 0;
        int r = pv_control_packet_receive(pair[1], &p, MSG_DONTWAIT, &err);
        PV_FUZZ_HOLDS(r == 1 ? json_is_object(p.body) : err.kind == PV_ERR_INPUT);
        if (r == 1) {
                pv_control_error_parse(p.body, &told);
                PV_FUZZ_HOLDS(told.kind > PV_ERR_NONE && told.kind < PV_ERR_KINDS);
        }
        return 0;
}
