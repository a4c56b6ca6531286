"""A shop in Django whose receipts are written by tasks on Kafka.

python manage.py migrate
python manage.py sharegroup_worker &
python manage.py order 3000 a@example.org
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
execute_from_command_line(sys.argv)
