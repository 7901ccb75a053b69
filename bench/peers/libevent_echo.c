/* Echo on libevent: a bufferevent per connection, one thread.
 *
 * Fast settings: no locks, a change list (fewer epoll_ctl calls), no delay of small segments, and the
 * answer is written to the socket at once. A bufferevent alone would only queue it, ask epoll for
 * writability, and write one turn later: run with `--queued` to see what that costs. What the peer is
 * too slow to take goes through the bufferevent's queue, and reading pauses until it has gone.
 *
 *   cc -O2 libevent_echo.c -o libevent-echo $(pkg-config --cflags --libs libevent_core) &&
 *   ./libevent-echo --listen 127.0.0.1:7000
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>

#include "arguments.h"

enum { BACKLOG = 4096 };

static bool queued;

static void on_data(struct bufferevent *connection, void *unused) {
    (void)unused;
    struct evbuffer *input = bufferevent_get_input(connection);
    if (!queued) {
        evbuffer_write(input, bufferevent_getfd(connection));
        if (evbuffer_get_length(input) == 0) return;
        bufferevent_disable(connection, EV_READ);
    }
    bufferevent_write_buffer(connection, input);
}

/* The queue is empty again. */
static void on_sent(struct bufferevent *connection, void *unused) {
    (void)unused;
    if (!queued) bufferevent_enable(connection, EV_READ);
}

static void on_event(struct bufferevent *connection, short events, void *unused) {
    (void)unused;
    if (events & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) bufferevent_free(connection);
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t socket,
                          struct sockaddr *peer, int length, void *unused) {
    (void)peer;
    (void)length;
    (void)unused;
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct event_base *base = evconnlistener_get_base(listener);
    struct bufferevent *connection = bufferevent_socket_new(base, socket, BEV_OPT_CLOSE_ON_FREE);
    if (connection == NULL) abort();
    bufferevent_setcb(connection, on_data, on_sent, on_event, NULL);
    bufferevent_enable(connection, EV_READ | EV_WRITE);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = address_of(argc, argv, "--listen");
    queued = argument(argc, argv, "--queued") != 0;
    signal(SIGPIPE, SIG_IGN);
    struct event_config *config = event_config_new();
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    struct event_base *base = event_base_new_with_config(config);
    struct evconnlistener *listener = evconnlistener_new_bind(
        base, on_connection, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE, BACKLOG,
        (const struct sockaddr *)&address, sizeof address);
    if (listener == NULL) {
        perror("cannot listen");
        return 1;
    }
    return event_base_dispatch(base);
}
