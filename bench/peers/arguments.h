/* The command line of the C peers: `--listen ADDRESS:PORT` (IPv4) and the like, and flags. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

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

/* The address that follows `name`. */
static struct sockaddr_in address_of(int argc, char **argv, const char *name) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    unsigned short port;
    int at = argument(argc, argv, name);
    if (at == 0 || at + 1 >= argc || sscanf(argv[at + 1], "%15[0-9.]:%hu", host, &port) != 2 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "usage: %s %s 127.0.0.1:7000\n", argv[0], name);
        exit(2);
    }
    address.sin_port = htons(port);
    return address;
}

#endif
