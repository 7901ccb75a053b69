/* A proxy on libevent: two bufferevents per connection, one thread.
 *
 * Fast settings: no locks, a change list (fewer epoll_ctl calls), no delay of small segments, and what one side
 * reads is written to the other's socket at once. A bufferevent alone would only queue it, ask epoll for writability, and
 * write one turn later. What a side is too slow to take goes through its queue, and the other side pauses until it has
 * gone. When one side ends, so does the other.
 *
 *   cc -O2 libevent_proxy.c -o libevent-proxy $(pkg-config --cflags --libs libevent_core) &&
 *   ./libevent-proxy --listen 127.0.0.1:7000 --to 127.0.0.1:7001
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/tcp.h>
#include <signal.h>

#include "arguments.h"

enum { BACKLOG = 4096 };

static struct sockaddr_in upstream;

/* The argument of each side's callbacks is the other side. */
static void on_data(struct bufferevent *side, void *argument) {
    struct bufferevent *other = argument;
    struct evbuffer *input = bufferevent_get_input(side);
    if (evbuffer_get_length(bufferevent_get_output(other)) == 0) {
        evbuffer_write(input, bufferevent_getfd(other));
        if (evbuffer_get_length(input) == 0) return;
    }
    bufferevent_disable(side, EV_READ);
    bufferevent_write_buffer(other, input);
}

/* The queue is empty again. */
static void on_sent(struct bufferevent *side, void *argument) {
    (void)side;
    bufferevent_enable(argument, EV_READ);
}

static void on_event(struct bufferevent *side, short events, void *argument) {
    if (events & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        bufferevent_free(side);
        bufferevent_free(argument);
    }
}

static void no_delay(evutil_socket_t socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t socket,
                          struct sockaddr *peer, int length, void *unused) {
    (void)peer;
    (void)length;
    (void)unused;
    struct event_base *base = evconnlistener_get_base(listener);
    struct bufferevent *client = bufferevent_socket_new(base, socket, BEV_OPT_CLOSE_ON_FREE);
    struct bufferevent *server = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (client == NULL || server == NULL) abort();
    bufferevent_setcb(client, on_data, on_sent, on_event, server);
    bufferevent_setcb(server, on_data, on_sent, on_event, client);
    if (bufferevent_socket_connect(server, (struct sockaddr *)&upstream, sizeof upstream) != 0) {
        bufferevent_free(server);
        bufferevent_free(client);
        return;
    }
    no_delay(socket);
    no_delay(bufferevent_getfd(server));
    bufferevent_enable(client, EV_READ | EV_WRITE);
    bufferevent_enable(server, EV_READ | EV_WRITE);
}

int main(int argc, char **argv) {
    struct sockaddr_in address = address_of(argc, argv, "--listen");
    upstream = address_of(argc, argv, "--to");
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
