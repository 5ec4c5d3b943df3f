/* A web server for images: says "It works." to whoever asks. Its port is its first argument that is a number, else 80; others are ignored. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const char answer[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\nConnection: close\r\n\r\nIt works.\n";

static void leave(int signal) { (void)signal; _exit(0); }

static int on(int port) {
    int yes = 1, no = 0, server = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 both = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr *at = (struct sockaddr *)&both;
    socklen_t length = sizeof both;
    if (server >= 0) {
        setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    } else {
        server = socket(AF_INET, SOCK_STREAM, 0);
        at = (struct sockaddr *)&four;
        length = sizeof four;
    }
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(server, at, length) || listen(server, 16)) { perror("listen"); exit(1); }
    return server;
}

/* Reads to the end of the request's head, or to the client's end. */
static void hear(int client) {
    char text[8192];
    size_t n_read = 0;
    while (n_read < sizeof text - 1) {
        ssize_t n = read(client, text + n_read, sizeof text - 1 - n_read);
        if (n <= 0) return;
        n_read += n;
        text[n_read] = 0;
        if (strstr(text, "\r\n\r\n")) return;
    }
}

int main(int n_words, char **words) {
    struct sigaction on_end = {.sa_handler = leave};
    sigaction(SIGINT, &on_end, 0);
    sigaction(SIGTERM, &on_end, 0);
    sigaction(SIGQUIT, &on_end, 0);
    signal(SIGPIPE, SIG_IGN);
    int port = 80;
    for (int i = 1; i < n_words; i++) if (atoi(words[i]) > 0) { port = atoi(words[i]); break; }
    int server = on(port);
    FILE *note = fopen("/var/run/nginx.pid", "w");
    if (note) { fprintf(note, "%d\n", getpid()); fclose(note); }
    printf("%s: serves on port %d\n", words[0], port);
    fflush(stdout);
    for (;;) {
        int client = accept(server, 0, 0);
        if (client < 0) continue;
        struct timeval patience = {.tv_sec = 5};
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        hear(client);
        if (write(client, answer, sizeof answer - 1) < 0) perror("write");
        shutdown(client, SHUT_WR);
        char rest[512];
        while (read(client, rest, sizeof rest) > 0) {}
        close(client);
    }
}
