/* Stands in for libibverbs with two cards of InfiniBand and one of RoCE, each with an active second port,
 * and a fourth card without one. The table of addresses of a port of RoCE is filled at index 1 of 4. With
 * CLOSED no card can be opened; with WARNING that is printed, and none is found. Declares the beginnings of
 * structures of ibv_query_port(3). */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifndef STATE
#define STATE 4
#endif

enum { INFINIBAND = 1, ETHERNET };

struct attributes {
	int state, most, active_most, addresses;
	uint32_t capabilities, message, bad, violations;
	uint16_t keys, local, manager;
	uint8_t mask, lanes, level, timeout, init, width, speed, physical, layer;
};

static struct card {
	const char *name;
	uint8_t layer, state;
} cards[] = { { "mlx5_0", INFINIBAND, STATE },
	      { "mlx5_10", INFINIBAND, STATE },
	      { "roce0", ETHERNET, STATE },
	      { "mlx5_3", INFINIBAND, 1 } };
static struct card *list[] = { &cards[0], &cards[1], &cards[2], &cards[3], NULL };

struct card **ibv_get_device_list(int *count)
{
#ifdef WARNING
	fputs(WARNING, stderr);
	*count = 0;
	return list + 4;
#else
	*count = 4;
	return list;
#endif
}

const char *ibv_get_device_name(const struct card *card)
{
	return card->name;
}

struct card *ibv_open_device(struct card *card)
{
#ifdef CLOSED
	return NULL;
#endif
	return card;
}

int ibv_query_port(const struct card *card, uint8_t port, struct attributes *attributes)
{
	if (port > 2)
		return EINVAL;
	memset(attributes, 0, sizeof *attributes);
	attributes->state = port == 2 ? card->state : 1;
	attributes->addresses = 4;
	attributes->layer = card->layer;
	return 0;
}

int ibv_query_gid(const struct card *card, uint8_t port, int index, uint8_t *address)
{
	if (index >= 4 || card->layer != ETHERNET || port != 2)
		return -1;
	memset(address, index == 1 ? 0xfe : 0, 16);
	return 0;
}
