/* Echo on libuv: one loop, one thread.
 *
 * Fast settings: one shared read buffer (a read is answered before the next one starts), uv_try_write so
 * that an answer needs neither a request nor a turn of the loop, no delay of small segments. What the
 * peer is too slow to take is copied and queued, and reading pauses until it has gone.
 *
 *   cc -O2 libuv_echo.c -o libuv-echo $(pkg-config --cflags --libs libuv) && ./libuv-echo --listen 127.0.0.1:7000
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "arguments.h"

enum { BUFFER_BYTES = 16 * 1024, BACKLOG = 4096 };

static char buffer[BUFFER_BYTES];

/* A queued write and its bytes. */
struct rest {
    uv_write_t request;
    char bytes[];
};

static void on_read(uv_stream_t *stream, ssize_t received, const uv_buf_t *data);

static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    (void)handle;
    (void)suggested;
    *out = uv_buf_init(buffer, sizeof buffer);
}

static void on_close(uv_handle_t *handle) { free(handle); }

static void close_stream(uv_stream_t *stream) {
    if (!uv_is_closing((uv_handle_t *)stream)) uv_close((uv_handle_t *)stream, on_close);
}

static void on_rest_written(uv_write_t *request, int status) {
    uv_stream_t *stream = request->handle;
    free(request);
    if (status < 0 || uv_read_start(stream, on_allocate, on_read) < 0) close_stream(stream);
}

static void queue_rest(uv_stream_t *stream, const char *bytes, size_t length) {
    struct rest *rest = malloc(sizeof *rest + length);
    if (rest == NULL) abort();
    memcpy(rest->bytes, bytes, length);
    uv_buf_t out = uv_buf_init(rest->bytes, length);
    uv_read_stop(stream);
    if (uv_write(&rest->request, stream, &out, 1, on_rest_written) < 0) {
        free(rest);
        close_stream(stream);
    }
}

static void on_read(uv_stream_t *stream, ssize_t received, const uv_buf_t *data) {
    if (received == 0) return; /* EAGAIN */
    if (received < 0) {
        close_stream(stream);
        return;
    }
    uv_buf_t out = uv_buf_init(data->base, received);
    int sent = uv_try_write(stream, &out, 1);
    if (sent == received) return;
    if (sent == UV_EAGAIN) sent = 0;
    if (sent < 0)
        close_stream(stream);
    else
        queue_rest(stream, data->base + sent, received - sent);
}

static void on_connection(uv_stream_t *listener, int status) {
    if (status < 0) return;
    uv_tcp_t *stream = malloc(sizeof *stream);
    if (stream == NULL) abort();
    uv_tcp_init(listener->loop, stream);
    if (uv_accept(listener, (uv_stream_t *)stream) < 0) {
        close_stream((uv_stream_t *)stream);
        return;
    }
    uv_tcp_nodelay(stream, 1);
    uv_read_start((uv_stream_t *)stream, on_allocate, on_read);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = address_of(argc, argv, "--listen");
    signal(SIGPIPE, SIG_IGN);
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t listener;
    uv_tcp_init(loop, &listener);
    int error = uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0);
    if (error == 0) error = uv_listen((uv_stream_t *)&listener, BACKLOG, on_connection);
    if (error != 0) {
        fprintf(stderr, "cannot listen: %s\n", uv_strerror(error));
        return 1;
    }
    return uv_run(loop, UV_RUN_DEFAULT);
}
