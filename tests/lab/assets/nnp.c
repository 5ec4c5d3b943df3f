/* Says as whom it runs; belongs to root with the set-user-ID bit in its image. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("Effective uid: %d\n", (int)geteuid());
    return 0;
}
