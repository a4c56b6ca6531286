"""Settings of the shop: the tables of tasks are in the same database as the orders."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "for trying it out only")
USE_TZ = True
INSTALLED_APPS = ["sharegroup.django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
    }
}
TASKS = {
    "default": {
        "BACKEND": "sharegroup.django.SharegroupBackend",
        "QUEUES": ["default"],
        "OPTIONS": {
            "name": "shop",
            "concurrency": 4,
            "retry": {"max_attempts": 5, "initial_delay": "100ms", "retry_on": ["ConnectionError"]},
        },
    }
}
