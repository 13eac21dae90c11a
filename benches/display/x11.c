/* The tasks of `plumb display bench --session` by an X11 client: the same rectangles, the same end (XSync, after which all before it is
 * drawn). A pan copies what stays in view and draws what comes into it. Prints a line of JSON for each task. With `keys` it waits for the keys 0 to 5
 * instead, one a task, and shows by the gray of a mark in the corner which it has done: for a viewer of VNC.
 *
 * usage: x11 DISPLAY RECTANGLES [keys]   (a file of lines `layer x0 y0 x1 y1`: an inverter's rectangles) */
#define _GNU_SOURCE
#include <X11/Xlib.h>
#include <X11/Xutil.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { FRAME = 400, COLUMNS = 5, ROWS = 6, SIDE = 197, CELL_X = 80, CELL_Y = 66, LAYERS = 4, EDITS = 1000, PAN = 40, ZOOMED_X = 3940 };
static const double WHOLE = 1660.0 / 65536;

typedef struct { int layer, x0, y0, x1, y1; } Rect;
static Rect inverter[64];
static int rects;
static Display *display;
static Window window;
static GC gcs[LAYERS], clear;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Bytes of TCP payload both ways so far. */
static double bytes(void) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0, sizeof info);
    getsockopt(ConnectionNumber(display), IPPROTO_TCP, TCP_INFO, &info, &length);
    return (double)info.tcpi_bytes_acked + info.tcpi_bytes_received;
}

/* Draws columns by rows of inverters as one list, in order, between these columns of pixels; runs of one layer are one request. */
static void draw(int columns, int rows, double x, double scale, int left, int right) {
    XRectangle run[1024];
    int count = 0, layer = 0;
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++)
            for (int i = 0; i < rects; i++) {
                Rect r = inverter[i];
                int x0 = (r.x0 + column * CELL_X - x) * scale, x1 = (r.x1 + column * CELL_X - x) * scale;
                int y0 = (r.y0 + row * CELL_Y) * scale, y1 = (r.y1 + row * CELL_Y) * scale;
                if (x1 < left || x0 >= right || y0 >= FRAME) continue;
                if (count && (r.layer != layer || count == 1024)) {
                    XFillRectangles(display, window, gcs[layer], run, count);
                    count = 0;
                }
                layer = r.layer;
                run[count++] = (XRectangle){x0, y0, x1 > x0 ? x1 - x0 : 1, y1 > y0 ? y1 - y0 : 1};
            }
    if (count) XFillRectangles(display, window, gcs[layer], run, count);
}

static void wipe(int left, int width) { XFillRectangle(display, window, clear, left, 0, width, FRAME); }

static void open_window(const char *name) {
    display = XOpenDisplay(name);
    if (!display) exit((fprintf(stderr, "no X server at %s\n", name), 1));
    Window root = DefaultRootWindow(display);
    window = XCreateSimpleWindow(display, root, 0, 0, FRAME, FRAME, 0, 0, WhitePixel(display, 0));
    XSelectInput(display, window, ExposureMask | KeyPressMask);
    XMapWindow(display, window);
    static const char stipples[LAYERS][8] = {
        {0x11, 0x44, 0x11, 0x44, 0x11, 0x44, 0x11, 0x44}, {0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa, 0x55, 0xaa},
        {0x0f, 0x0f, 0x0f, 0x0f, 0xf0, 0xf0, 0xf0, 0xf0}, {0x88, 0, 0x22, 0, 0x88, 0, 0x22, 0}};
    static const unsigned long colors[LAYERS] = {0x2060c0, 0xc03030, 0x208040, 0xb09020};
    for (int i = 0; i < LAYERS; i++) {
        XGCValues values = {.foreground = colors[i], .fill_style = FillStippled};
        values.stipple = XCreateBitmapFromData(display, window, stipples[i], 8, 8);
        gcs[i] = XCreateGC(display, window, GCForeground | GCFillStyle | GCStipple, &values);
    }
    XGCValues white = {.foreground = WhitePixel(display, 0)};
    clear = XCreateGC(display, window, GCForeground, &white);
    XEvent event;
    do XNextEvent(display, &event); while (event.type != Expose);
}

static void edit(void) {
    for (int i = 0; i < EDITS; i++) {
        Rect *it = &inverter[i % rects];
        int x = i / rects % COLUMNS * CELL_X, y = i / rects / COLUMNS % ROWS * CELL_Y;
        XFillRectangle(display, window, clear, it->x0 + x, it->y0 + y, it->x1 - it->x0, it->y1 - it->y0);
        XFillRectangle(display, window, gcs[it->layer], it->x0 + 1 + x, it->y0 + y, it->x1 - it->x0, it->y1 - it->y0);
        XFlush(display);
    }
}

static const char *const tasks[] = {"cold-start", "picture", "edits", "million", "zoom", "pan"};

static void perform(int task) {
    switch (task) {
    case 0:
    case 1: wipe(0, FRAME); draw(COLUMNS, ROWS, 0, 1, 0, FRAME); break;
    case 2: edit(); break;
    case 3: wipe(0, FRAME); draw(SIDE, SIDE, 0, WHOLE, 0, FRAME); break;
    case 4: wipe(0, FRAME); draw(SIDE, SIDE, ZOOMED_X, 2 * WHOLE, 0, FRAME); break;
    case 5:
        XCopyArea(display, window, window, clear, PAN, 0, FRAME - PAN, FRAME, 0, 0);
        wipe(FRAME - PAN, PAN);
        draw(SIDE, SIDE, ZOOMED_X + PAN / (2 * WHOLE), 2 * WHOLE, FRAME - PAN, FRAME);
        break;
    }
}

int main(int count, char **word) {
    FILE *file = count >= 3 ? fopen(word[2], "r") : NULL;
    if (!file) return fprintf(stderr, "usage: x11 DISPLAY RECTANGLES [keys]\n"), 2;
    Rect r;
    while (rects < 64 && fscanf(file, "%d %d %d %d %d", &r.layer, &r.x0, &r.y0, &r.x1, &r.y1) == 5) inverter[rects++] = r;
    double begun = now(), sent = 0;
    open_window(word[1]);
    if (count > 3) {
        GC mark = XCreateGC(display, window, 0, NULL);
        XSetInputFocus(display, window, RevertToNone, CurrentTime);
        for (;;) {
            XEvent event;
            XNextEvent(display, &event);
            if (event.type != KeyPress) continue;
            int task = XLookupKeysym(&event.xkey, 0) - '0';
            perform(task);
            XSetForeground(display, mark, 0x101010 * (task + 1));
            XFillRectangle(display, window, mark, 0, 0, 8, 8);
            XFlush(display);
        }
    }
    for (int task = 0; task < 6; task++) {
        perform(task);
        XSync(display, False);
        printf("{\"task\": \"%s\", \"ns\": %.0f, \"bytes\": %.0f}\n", tasks[task], now() - begun, bytes() - sent);
        fflush(stdout);
        begun = now();
        sent = bytes();
    }
    return 0;
}
