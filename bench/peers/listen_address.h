/* The command line of the C peers: `--listen ADDRESS:PORT` (IPv4), and flags. */
#ifndef LISTEN_ADDRESS_H
#define LISTEN_ADDRESS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where `name` stands on the command line; 0 when it does not. */
static int argument(int argc, char **argv, const char *name) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return i;
    return 0;
}

static struct sockaddr_in listen_address(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    unsigned short port;
    int listen = argument(argc, argv, "--listen");
    if (listen == 0 || listen + 1 >= argc ||
        sscanf(argv[listen + 1], "%15[0-9.]:%hu", host, &port) != 2 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "usage: %s --listen 127.0.0.1:7000\n", argv[0]);
        exit(2);
    }
    address.sin_port = htons(port);
    return address;
}

#endif
